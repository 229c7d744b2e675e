/** A file that is damaged on disk. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openSqliteCallLog } from '../../../src/broker/calls/sqlite/sqlite-call-log.js';
import { readReplyBody } from '../../../src/broker/protocol/reply-body.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { done, idOf, newCall } from '../../contract/broker/call-log-checks.js';
import { makeFolder } from './log-process.js';

let place: ReturnType<typeof makeFolder>;
let file: string;
let problems: (string | undefined)[];
beforeEach(() => {
  place = makeFolder('damage');
  file = path.join(place.folder, 'calls.db');
  problems = [];
});
afterEach(() => place.remove());

const open = () =>
  openSqliteCallLog({
    ...{ folder: place.folder, clock: new FakeClock() },
    onProblem: ({ details }) => problems.push(details.reason),
  });

test.each([
  ['is no database', () => writeFileSync(file, 'not a database at all')],
  ['lost its pages', () => writeFileSync(file, readFileSync(file).fill(0xff, 4096))],
  ['lost its end', () => writeFileSync(file, readFileSync(file).subarray(0, 4096 * 3))],
  [
    'has a newer version',
    () => {
      const bytes = readFileSync(file);
      bytes.writeUInt32BE(99, 60);
      writeFileSync(file, bytes);
    },
  ],
] as const)(
  'AC-BR15: a file that %s is set aside and reported, never removed, and a new file is begun',
  async (_, damage) => {
    const first = await open();
    for (let at = 0; at < 50; at++) await done(first, `k${at}`, Buffer.alloc(500, 'x'));
    await first.close();
    damage();
    const damaged = readFileSync(file);
    const second = await open();
    expect(problems).toEqual(['unusable_store']);
    expect(await second.find(idOf('k0'))).toBeUndefined();
    expect(second.usage()).toMatchObject({ open: 0, finished: 0 });
    await done(second, 'new', '{"n":1}');
    await second.close();
    expect(readFileSync(`${file}.unusable`).equals(damaged)).toBe(true);
    const third = await open();
    expect(await third.find(idOf('new'))).toMatchObject({ state: 'done' });
    await third.close();
    for (const name of readdirSync(place.folder))
      expect([name, statSync(path.join(place.folder, name)).mode & 0o077]).toEqual([name, 0]);
  },
);

test('AC-BR15 an outcome that changed on disk is uncertain and reported, and the other rows are served', async () => {
  const first = await open();
  await done(first, 'k1', '{"text":"the reply of the first call"}');
  await done(first, 'k2', '{"text":"another one"}');
  await first.close();
  const bytes = readFileSync(file);
  bytes.write('a', bytes.indexOf('the reply of the first call'));
  writeFileSync(file, bytes);
  const second = await open();
  const { isNew, row } = await second.receive(newCall('k1'));
  expect([isNew, row.state]).toEqual([false, 'uncertain']);
  const read = readReplyBody(row.reply as Buffer);
  expect(read).toMatchObject({
    kind: 'error',
    error: { code: 'outcome_uncertain', details: { reason: 'damaged_row' } },
  });
  expect(problems).toEqual(['damaged_row']);
  expect(await second.find(idOf('k2'))).toMatchObject({ state: 'done' });
  await second.close();
});
