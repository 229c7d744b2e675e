/** Two brokers and one folder. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { countFor } from '../../tier.js';
import { makeFolder, runStore, startStore } from './store-process.js';

const { folder, remove } = makeFolder('lock');
afterEach(remove);

test('B12: a second process is refused as often as it is tried, and the first one goes on', async () => {
  const first = startStore(folder, ['hold']);
  await first.reached(1);
  const owner = JSON.parse(readFileSync(path.join(folder, 'broker.owner'), 'utf8')) as Record<string, unknown>;
  expect(owner).toMatchObject({ pid: first.child.pid, bootId: expect.any(String), startedAt: expect.any(String) });
  for (let round = 0; round < countFor(2, 10); round++) {
    const seconds = await Promise.all([runStore(folder, ['put', 1, 1]), runStore(folder, ['put', 1, 1])]);
    for (const second of seconds) expect(second.lines).toEqual(['X invalid_spec in_use ']);
  }
  first.child.stdin?.end();
  expect((await first.ended).lines).toEqual(['opened', 'closed']);
}, 120_000);

test('B12: of several that start at once exactly one is let in; when it is killed the next one is, at its first try', async () => {
  for (let round = 0; round < countFor(1, 3); round++) {
    const all = [1, 2, 3].map(() => startStore(folder, ['hold']));
    await Promise.all(all.map((each) => each.reached(1)));
    const losers = all.filter((each) => each.lines()[0] !== 'opened');
    const [winner] = all.filter((each) => each.lines()[0] === 'opened');
    expect(losers.length).toBe(2);
    for (const loser of losers) expect((await loser.ended).lines).toEqual(['X invalid_spec in_use ']);
    winner?.child.kill('SIGKILL');
    expect((await winner?.ended)?.lines).toEqual(['opened']);
    // What it left is there: the lock was the system's.
    expect((await runStore(folder, ['put', 1, 1])).lines.at(-1)).toBe('closed');
  }
}, 120_000);

test('B12: the same process is refused as well, and let in when the first one is closed', async () => {
  const first = await openBrokerStore({ folder, clock: systemClock });
  await expect(openBrokerStore({ folder, clock: systemClock })).rejects.toMatchObject({
    code: 'invalid_spec',
    details: { reason: 'in_use' },
  });
  await first.close();
  const second = await openBrokerStore({ folder, clock: systemClock });
  await second.close();
});
