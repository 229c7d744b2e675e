/**
 * X18 end to end: definitions and requests that are designed to be costly.
 *
 * Here a text must end as it should, cost no more memory than it may, and not hang the gateway. That work is cut into slices is
 * tested without a clock, beside the sources; the long lane `bombs` holds each of these texts to 50 ms.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isLongTier, timeLimitMs } from '../tier.js';
import { Bombed, faults } from './bombed.js';
import { requestBombs, schemaBombs } from './bombs.js';

const stallMsMax = timeLimitMs(100);
const grewMiBMax = 64;
const triesMax = 3;

const bombed = new Bombed();
beforeAll(() => bombed.start(), 30_000);
afterAll(() => bombed.remove());

/** Tries until one attempt stays within the limit, or for a bounded number of attempts: garbage collection may be late. */
async function judge(what: string, run: () => Promise<unknown>): Promise<void> {
  let [stallMs, grewMiB] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let i = 0; i < triesMax && (stallMs > stallMsMax || grewMiB > grewMiBMax); i++) {
    await bombed.gateway.begin();
    await run();
    const seen = await bombed.gateway.read();
    [stallMs, grewMiB] = [Math.min(stallMs, seen.stallMs), Math.min(grewMiB, seen.grewMiB)];
    expect(faults(seen.problems)).toEqual([]);
  }
  console.log(`X18 ${what}: ${stallMs.toFixed(0)} ms, ${grewMiB.toFixed(0)} MiB`);
  const [stalls, grows] = [stallMs > stallMsMax && stallMs, grewMiB > grewMiBMax && grewMiB];
  expect({ what, stalls, grows }).toEqual({ what, stalls: false, grows: false });
}

test.each(Object.keys(requestBombs))('X18 a client that sends %s delays no other client', async (what) => {
  const [method, name, params] = (requestBombs[what] as () => [string, string, string])();
  let status = 0;
  await judge(what, async () => {
    ({ status } = await bombed.post(method, name, params));
  });
  expect([200, 400, 413]).toContain(status);
  expect((await bombed.echo('still here')).text).toContain('still here');
});

/** Created once: the texts have 50 MiB. */
let texts: ReturnType<typeof schemaBombs>;
const names = schemaBombs('http://canary').map(([what]) => what);
/** Each text over one transport, in turn; in the lane each text over both. */
const serversFor = (at: number) => (isLongTier ? ['pipe', 'web'] : [at % 2 === 0 ? 'pipe' : 'web']);
test.each(names.flatMap((what, at) => serversFor(at).map((server) => [what, server] as const)))(
  'X18 a server that lists %s delays no other server, and causes no request to another address (%s)',
  async (what, server) => {
    texts ??= schemaBombs(bombed.canaryUrl);
    const [, isTaken, text] = texts.find(([each]) => each === what) as [string, boolean, string];
    let outcome: number | string = 0;
    await judge(`${what} (${server})`, async () => {
      ({ outcome } = await bombed.listOnce(server, text));
    });
    expect([what, outcome]).toEqual([what, isTaken ? expect.any(Number) : 'protocol_error']);
    expect(bombed.fetched).toBe(0);
  },
  60_000,
);
