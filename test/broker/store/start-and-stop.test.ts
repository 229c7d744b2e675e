/** A log that is opened after keys were revoked, and a log whose disk hangs when it is closed. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openSqliteCallLog } from '../../../src/broker/calls/sqlite/sqlite-call-log.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { done, idOf, newCall } from '../../contract/broker/call-log-checks.js';
import { makeFolder, startLog } from './log-process.js';

let place: ReturnType<typeof makeFolder>;
beforeEach(() => {
  place = makeFolder('start');
});
afterEach(() => place.remove());

test('AC-BR13 a start purges the calls of workers whose key was revoked meanwhile, and of earlier holders of a name', async () => {
  const clock = new FakeClock();
  const first = await openSqliteCallLog({ folder: place.folder, clock });
  await done(first, 'old', '{"n":1}');
  await first.receive(newCall('open'));
  await done(first, 'kept', '{"n":2}', { id: idOf('kept', 'w1', 'e2') });
  await done(first, 'gone', '{"n":3}', { id: idOf('gone', 'w2') });
  await done(first, 'own', '{"n":4}', { id: idOf('own', '_app'), isCallersKey: true });
  await done(first, 'doubt', '{"n":5}', { id: idOf('doubt', 'w4') });
  await first.close();
  const workers = [
    { name: 'w1', epoch: 'e2' },
    // A key with a mistake names this worker.
    { name: 'w4', epoch: undefined },
    { name: 'w3', epoch: 'e1' },
  ];
  const second = await openSqliteCallLog({ folder: place.folder, clock, workers });
  expect(second.usage()).toEqual({ open: 0, finished: 3, replyBytes: 14, callersKeys: 1 });
  expect(await second.find(idOf('old'))).toBeUndefined();
  expect(await second.find(idOf('gone', 'w2'))).toBeUndefined();
  expect((await second.find(idOf('kept', 'w1', 'e2')))?.reply?.toString()).toBe('{"n":2}');
  expect((await second.find(idOf('own', '_app')))?.reply?.toString()).toBe('{"n":4}');
  // The row of a call that has run stays, because the operator may list the old key again.
  expect(await second.receive(newCall('old'))).toMatchObject({
    isNew: false,
    row: { state: 'done', reply: undefined },
  });
  await second.close();
});

test('a disk that hangs does not delay closing the log for long: its calls are uncertain', async () => {
  // The first sync after the log was opened takes a minute.
  const strace = ['strace', '-f', '-o', '/dev/null', '-e', 'trace=fsync', '-e'];
  const log = startLog(place.folder, ['hang'], [...strace, 'inject=fsync:delay_enter=60000000:when=13']);
  await log.reached(4);
  log.child.kill('SIGKILL');
  const { lines } = await log.ended;
  expect(lines).toEqual(['opened', 'P store_failed', 'X transport store_failed uncertain', 'closed']);
}, 60_000);
