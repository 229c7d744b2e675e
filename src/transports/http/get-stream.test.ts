import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { seededRandom } from '../../kernel/random.js';
import { ResumableStreams, reconnectDelayMs } from './get-stream.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import type { HttpDeps } from './http-pool.js';

test('the first attempt waits exactly as long as the server asked, within bounds', () => {
  const ask = (retryMs: number | undefined) => reconnectDelayMs(retryMs, 0, 30_000, () => 0.5);
  expect([undefined, 500, 0, 60_000, 1e9].map(ask)).toEqual([1_000, 500, 100, 60_000, 60_000]);
});

test('after failed attempts the wait grows to its bound, has jitter, and is never shorter than requested', () => {
  const random = seededRandom(3);
  for (const asked of [100, 1_000, 20_000, 60_000]) {
    for (let fruitless = 1; fruitless < 40; fruitless++) {
      const delayMs = reconnectDelayMs(asked, fruitless, 30_000, random);
      expect(delayMs).toBeGreaterThanOrEqual(asked);
      expect(delayMs).toBeLessThanOrEqual(Math.max(asked, 30_000));
    }
  }
  expect(reconnectDelayMs(1_000, 1, 30_000, () => 1)).toBe(2_000);
  expect(reconnectDelayMs(1_000, 3, 30_000, () => 1)).toBe(8_000);
  expect(reconnectDelayMs(1_000, 30, 30_000, () => 1)).toBe(30_000);
});

/** Every GET is answered with `status`, as a page of HTML. */
function refusingServer(status: number, headers: Readonly<Record<string, string>> = {}) {
  const clock = new FakeClock();
  const gets: number[] = [];
  const lost: number[] = [];
  const streams = new ResumableStreams({
    server: 'a',
    deps: { clock, random: () => 0 } as unknown as HttpDeps,
    token: undefined,
    get: (_id, sink: ExchangeSink) => {
      gets.push(clock.nowMs());
      queueMicrotask(() => {
        const error = sink.head(status, { 'content-type': 'text/html', ...headers });
        if (error) sink.failed(error);
      });
      return { abort: () => {} } as HttpExchange;
    },
    receiveStandalone: () => {},
    sessionMaybeLost: () => lost.push(clock.nowMs()),
  });
  return { clock, gets, lost, streams };
}

const pauses = [0, 30_000, 90_000, 210_000, 450_000, 750_000];

type RefusalRow = [what: string, status: number, at: number[], lostAt: number[], headers?: Record<string, string>];

test.each<RefusalRow>([
  ['a page of a proxy', 200, pauses, []],
  ['a refusal of a firewall', 406, pauses, []],
  ['a session that may be lost', 404, pauses, pauses],
  ['a token that is temporarily not accepted', 401, pauses, []],
  [
    'a token without the scope of the stream',
    403,
    pauses,
    [],
    { 'www-authenticate': 'Bearer error="insufficient_scope"' },
  ],
  ['a server without such a stream', 405, [0], []],
])(
  'W5 after %s the standalone stream is requested again with growing waits, or never',
  async (_what, status, at, lostAt, headers = {}) => {
    const { clock, gets, lost, streams } = refusingServer(status, headers);
    streams.openStandalone();
    await clock.advanceAsync(800_000);
    expect([gets, lost]).toEqual([at, lostAt]);
    streams.closeStandalone();
    await clock.advanceAsync(800_000);
    expect(gets).toEqual(at);
  },
);
