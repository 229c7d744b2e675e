/**
 * X18 end to end: definitions and requests made to be costly.
 *
 * A stall is judged by the best of some tries: what a text costs it costs each time, what the machine does to us it does not.
 * Beyond 50 ms a request may take what parsing its text once takes here and now, and a list, which is also judged and kept, what
 * parsing it a few times takes, neither more than 50 ms: on a busy machine 50 ms are less than either. That work is cut into slices is held
 * without a clock, beside the sources; 50 ms are held by the long lane `bombs`.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bombed, faults } from './bombed.js';
import { requestBombs, schemaBombs } from './bombs.js';

const stallMsMax = 50;
const grewMiBMax = 64;
const triesMax = 3;

const bombed = new Bombed();
beforeAll(() => bombed.start(), 30_000);
afterAll(() => bombed.remove());

/** What reading the text costs here and now. */
function costMs(text: string): number {
  const startedMs = performance.now();
  try {
    JSON.parse(text);
  } catch {
    // Some nest too deep for it.
  }
  return performance.now() - startedMs;
}

/** Tries until one cost no more than it may, or often enough; `looks`: how often the text may be looked at. */
async function judge(what: string, text: string, looks: number, run: () => Promise<unknown>): Promise<void> {
  let [stallMs, grewMiB, allowedMs] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 0];
  for (let i = 0; i < triesMax && (stallMs > allowedMs || grewMiB > grewMiBMax); i++) {
    await bombed.gateway.begin();
    await run();
    const seen = await bombed.gateway.read();
    [stallMs, grewMiB] = [Math.min(stallMs, seen.stallMs), Math.min(grewMiB, seen.grewMiB)];
    allowedMs = Math.max(allowedMs, stallMsMax + Math.min(looks * costMs(text), stallMsMax));
    expect(faults(seen.problems)).toEqual([]);
  }
  console.log(`X18 ${what}: ${stallMs.toFixed(0)} of ${allowedMs.toFixed(0)} ms, ${grewMiB.toFixed(0)} MiB`);
  const [stalls, grows] = [stallMs > allowedMs && stallMs, grewMiB > grewMiBMax && grewMiB];
  expect({ what, stalls, grows }).toEqual({ what, stalls: false, grows: false });
}

test.each(Object.keys(requestBombs))('X18 a client that sends %s holds up nobody', async (what) => {
  const [method, name, params] = (requestBombs[what] as () => [string, string, string])();
  let status = 0;
  await judge(what, params, 1, async () => {
    ({ status } = await bombed.post(method, name, params));
  });
  expect([200, 400, 413]).toContain(status);
  expect((await bombed.echo('still here')).text).toContain('still here');
});

const names = schemaBombs('http://canary').map(([what]) => what);
test.each(names.flatMap((what) => ['pipe', 'web'].map((server) => [what, server] as const)))(
  'X18 a server that lists %s holds up nobody, and nothing is fetched (%s)',
  async (what, server) => {
    const [, isTaken, text] = schemaBombs(bombed.canaryUrl).find(([each]) => each === what) as [
      string,
      boolean,
      string,
    ];
    let outcome: number | string = 0;
    await judge(`${what} (${server})`, text, 6, async () => {
      ({ outcome } = await bombed.listOnce(server, text));
    });
    expect([what, outcome]).toEqual([what, isTaken ? expect.any(Number) : 'protocol_error']);
    expect(bombed.fetched).toBe(0);
  },
  60_000,
);
