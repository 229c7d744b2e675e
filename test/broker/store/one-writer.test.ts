/** Only one process writes a log: further hosts on the same folder are refused. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openSqliteCallLog } from '../../../src/broker/calls/sqlite/sqlite-call-log.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { countFor } from '../../tier.js';
import { makeFolder, runLog, startLog } from './log-process.js';

let place: ReturnType<typeof makeFolder>;
beforeEach(() => {
  place = makeFolder('lock');
});
afterEach(() => place.remove());
const refused = ['X invalid_spec in_use '];

test('B12: a second process is refused at every try, and the first one continues', async () => {
  const { folder } = place;
  const first = startLog(folder, ['hold']);
  await first.reached(1);
  const holder = JSON.parse(readFileSync(path.join(folder, 'calls.owner'), 'utf8')) as Record<string, unknown>;
  expect(holder).toEqual({ pid: first.child.pid, startedAt: expect.any(String) });
  for (let round = 0; round < countFor(2, 10); round++) {
    const seconds = await Promise.all([runLog(folder, ['work', 1, 1]), runLog(folder, ['work', 1, 1])]);
    for (const second of seconds) expect(second.lines).toEqual(refused);
  }
  first.child.stdin?.end();
  expect((await first.ended).lines).toEqual(['opened', 'closed']);
}, 120_000);

test('B12: of several processes that start at once one opens the log; when it is killed, the next one opens it at its first try', async () => {
  const { folder } = place;
  for (let round = 0; round < countFor(1, 3); round++) {
    const all = [1, 2, 3].map(() => startLog(folder, ['hold']));
    await Promise.all(all.map((each) => each.reached(1)));
    const losers = all.filter((each) => each.lines()[0] !== 'opened');
    const [winner] = all.filter((each) => each.lines()[0] === 'opened');
    expect(losers).toHaveLength(2);
    for (const loser of losers) expect((await loser.ended).lines).toEqual(refused);
    winner?.child.kill('SIGKILL');
    expect((await winner?.ended)?.lines).toEqual(['opened']);
    expect((await runLog(folder, ['work', 1, 1])).lines.at(-1)).toBe('closed');
  }
}, 120_000);

test('B12: the same process is refused too, and opens the log when the first one is closed', async () => {
  const options = { folder: place.folder, clock: systemClock };
  const first = await openSqliteCallLog(options);
  await expect(openSqliteCallLog(options)).rejects.toMatchObject({
    code: 'invalid_spec',
    details: { reason: 'in_use' },
  });
  await first.close();
  const second = await openSqliteCallLog(options);
  expect(second.storeId).not.toBe(first.storeId);
  await second.close();
});
