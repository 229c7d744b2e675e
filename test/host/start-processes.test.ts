/**
 * The number of processes for the starts of a server that exits before its first message, counted by the server itself.
 */
import { expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

/** Advances the clock until the server is parked; the first probe of a parked server comes much later. */
async function untilParked(moody: MoodyHost): Promise<void> {
  await moody.advanceUntil('parked', 1_000);
}

test.each([0, 5, 20])(
  'W21 W20 a server never seen, with %i restarts: one process for each start, and one for the other era',
  async (max) => {
    const moody = MoodyHost.make();
    moody.mood = 'stillborn';
    await moody.start({ mcpServers: { a: moody.entry({ restart: { max } }) } });
    const call = outcomeOf(moody.call());
    await untilParked(moody);
    await call;
    expect([moody.row.run, moody.starts]).toEqual([max + 1, max + 2]);
    expect(moody.row.restartCount).toBe(max + 1);
  },
);

test('W21 a server whose era is known: one process for each start', async () => {
  const moody = await MoodyHost.open();
  await moody.call();
  expect([moody.row.run, moody.starts]).toEqual([1, 1]);
  moody.mood = 'stillborn';
  process.kill(moody.row.pid as number, 'SIGKILL');
  await eventually('its end is noticed', () => moody.row.state !== 'ready');
  await untilParked(moody);
  expect([moody.row.run, moody.starts]).toEqual([6, 6]);
  moody.mood = 'well';
  await moody.advanceUntil('ready', 10_000);
  expect([moody.row.run, moody.starts]).toEqual([7, 7]);
});
