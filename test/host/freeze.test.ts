/**
 * Servers of a real host that fail together: no server is charged, and the stream of events reports it once.
 */
import { expect, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import type { HostEvent } from '../../src/host/host-events.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { eventually } from '../eventually.js';
import { outcomeOf } from './harness.js';

test('S4 four servers that die together freeze the budgets, which is reported once', async () => {
  const clock = new FakeClock();
  const names = ['a', 'b', 'c', 'd'];
  const entry = { command: 'sh', args: ['-c', 'exit 1'] };
  const host = await createHost(
    { mcpServers: Object.fromEntries(names.map((name) => [name, entry])) },
    { clock, random: seededRandom(1) },
  );
  const heard: HostEvent[] = [];
  host.on('any', (event) => heard.push(event));
  try {
    const starts = names.map((name) => outcomeOf(host.start(name)));
    const failed = () => heard.filter((event) => event.kind === 'restart');
    await eventually('all have failed', () => failed().length === 4);
    const freezes = heard.filter((event) => event.kind === 'freeze');
    expect(freezes).toMatchObject([{ cause: 'correlated', forMs: 30_000, untilMs: 30_000, atMs: 0 }]);
    const { servers, server } = freezes[0] as Extract<HostEvent, { kind: 'freeze' }>;
    expect(servers).toHaveLength(3);
    expect(servers).toContain(server);
    // The third failure reached the limit: it and the fourth are not charged.
    const charged = host.status().map(({ restartCount }) => restartCount);
    expect(charged.sort()).toEqual([0, 0, 1, 1]);
    await host.close();
    expect(new Set(await Promise.all(starts))).toEqual(new Set(['server_stopped']));
  } finally {
    await host.close();
  }
});
