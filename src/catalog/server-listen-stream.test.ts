import { expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { ServerThrottle } from '../policy/throttles.js';
import type { CallOptions, Session } from '../session/session.js';
import type { Answer } from '../wire/peer-interface.js';
import { acknowledgeMsMax, reopenMs, ServerListenStream } from './server-listen-stream.js';

interface Request {
  readonly filter: Record<string, unknown>;
  readonly options: CallOptions;
  answer(answer: Partial<Answer> | HostError): void;
}

function open(listChanges: ('toolsListChanged' | 'promptsListChanged')[] = ['toolsListChanged']) {
  const clock = new FakeClock();
  const requests: Request[] = [];
  const problems: unknown[] = [];
  const set = { uris: [] as string[], gaps: 0, closedBy: undefined as HostError | undefined };
  const session = {
    server: 'a',
    get closedBy() {
      return set.closedBy;
    },
    request: (_method: string, params: string, options: CallOptions) =>
      new Promise((resolve, reject) => {
        const { notifications: filter } = JSON.parse(params) as { notifications: Record<string, unknown> };
        const answer = (given: Partial<Answer> | HostError) =>
          given instanceof HostError ? reject(given) : resolve(given);
        requests.push({ filter, options, answer });
      }),
  } as unknown as Session;
  const stream = new ServerListenStream({
    clock,
    session,
    throttle: new ServerThrottle(clock),
    listChanges,
    uris: () => set.uris,
    onGap: () => set.gaps++,
    clean: (text) => text,
    onProblem: (error) => problems.push(error),
  });
  const acknowledge = (uris?: string[]) =>
    stream.acknowledged(Buffer.from(JSON.stringify({ notifications: { resourceSubscriptions: uris } })));
  /** The streams that were not cancelled. */
  const live = () => requests.filter(({ options }) => !options.signal?.aborted).length;
  const outcome = (promise: Promise<void>) =>
    promise.then(
      () => 'ok',
      (error: HostError) => error.details.reason ?? error.code,
    );
  return { clock, requests, problems, set, stream, acknowledge, live, outcome };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('subscriptions are requested once, for as long as the session lives', () => {
  const { stream, requests } = open();
  stream.update();
  stream.update();
  expect(requests.map(({ filter }) => filter)).toEqual([{ toolsListChanged: true }]);
  expect(requests[0]?.options).toMatchObject({ deadlineAtMs: Number.POSITIVE_INFINITY, isLongLived: true });
});

test('without subscriptions no stream is opened, and an open one is ended', async () => {
  const { stream, requests, set, acknowledge, live } = open([]);
  stream.update();
  expect(requests).toEqual([]);
  set.uris = ['r:1'];
  const wanted = stream.subscribed('r:1');
  acknowledge(['r:1']);
  await wanted;
  set.uris = [];
  stream.update();
  expect(live()).toBe(0);
});

test('the old stream ends when the new one is acknowledged; changes meanwhile cause one more stream', async () => {
  const { stream, requests, set, acknowledge, live, outcome } = open();
  stream.update();
  acknowledge();
  const outcomes = ['r:1', 'r:2', 'r:3'].map((uri) => {
    set.uris = [...set.uris, uri];
    return outcome(stream.subscribed(uri));
  });
  expect([requests.length, live()]).toEqual([2, 2]);
  acknowledge(['r:1']);
  expect([requests.length, live()]).toEqual([3, 2]);
  acknowledge(['r:1', 'r:2']);
  expect(live()).toBe(1);
  expect(requests.at(-1)?.filter.resourceSubscriptions).toEqual(['r:1', 'r:2', 'r:3']);
  // The last resource is not in the server’s acknowledgement.
  expect(await Promise.all(outcomes)).toEqual(['ok', 'ok', 'not_subscribed']);
  expect(await outcome(stream.subscribed('r:3'))).toBe('not_subscribed');
  expect(requests.length).toBe(3);
});

test('a stream that ends is opened again after a wait that doubles, and the gap is reported', async () => {
  const { clock, stream, requests, set, acknowledge } = open();
  stream.update();
  acknowledge();
  let delayMs: number = reopenMs.first;
  for (let i = 1; i <= 12; i++) {
    requests.at(-1)?.answer({ kind: 'result', bytes: Buffer.from('{}') });
    await settle();
    await clock.advanceAsync(delayMs - 1);
    expect(requests.length).toBe(i);
    await clock.advanceAsync(1);
    expect([requests.length, set.gaps]).toEqual([i + 1, i - 1]);
    acknowledge();
    expect(set.gaps).toBe(i);
    delayMs = Math.min(2 * delayMs, reopenMs.max);
  }
  // A stream that lasted resets the wait.
  await clock.advanceAsync(reopenMs.max + 1);
  requests.at(-1)?.answer(new HostError('transport', 'cut'));
  await settle();
  await clock.advanceAsync(reopenMs.first);
  expect(requests.length).toBe(14);
});

test('a server that never acknowledges is assumed to listen', async () => {
  const { clock, stream, set, outcome } = open();
  set.uris = ['r:1'];
  const wanted = outcome(stream.subscribed('r:1'));
  await clock.advanceAsync(acknowledgeMsMax);
  expect(await wanted).toBe('ok');
});

test('a new stream that is refused leaves the old one open and rejects the waiting subscribe', async () => {
  const { stream, requests, set, acknowledge, outcome } = open();
  stream.update();
  acknowledge();
  set.uris = ['r:1'];
  const wanted = outcome(stream.subscribed('r:1'));
  requests[1]?.answer({ kind: 'error', bytes: Buffer.from('{"code":-32602,"message":"no such resource"}') });
  expect(await wanted).toBe('rpc_error');
  expect([requests[0]?.options.signal?.aborted, set.gaps]).toEqual([false, 0]);
});

test('a server that does not know the request receives it only once', async () => {
  const { clock, stream, requests, problems, outcome } = open();
  stream.update();
  requests[0]?.answer({ kind: 'error', bytes: Buffer.from('{"code":-32601,"message":"no"}') });
  await settle();
  await clock.advanceAsync(10 * reopenMs.max);
  expect([requests.length, problems.length, await outcome(stream.subscribed('r:1'))]).toEqual([1, 1, 'rpc_error']);
});

test('at the end of the session no stream is opened and all waiting requests settle', async () => {
  const { clock, stream, requests, set, live, outcome } = open();
  set.uris = ['r:1'];
  const wanted = outcome(stream.subscribed('r:1'));
  stream.stop();
  expect([await wanted, live()]).toEqual(['closed', 0]);
  const lost = open();
  lost.set.uris = ['r:1'];
  const alsoWanted = lost.outcome(lost.stream.subscribed('r:1'));
  lost.set.closedBy = new HostError('transport', 'gone', { reason: 'exit' });
  lost.requests[0]?.answer(lost.set.closedBy);
  expect(await alsoWanted).toBe('exit');
  await clock.advanceAsync(10 * reopenMs.max);
  await lost.clock.advanceAsync(10 * reopenMs.max);
  expect([requests.length, lost.requests.length]).toEqual([1, 1]);
});
