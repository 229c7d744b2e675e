import { expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { ServerThrottle } from '../policy/throttles.js';
import type { Answer } from '../wire/peer-interface.js';
import { ServerSubscriptions } from './server-subscriptions.js';

test.each(['result', 'error'] as const)(
  'W4 a subscription that the old session answers after a renewal (%s) is sent again in the new one',
  async (kind) => {
    const clock = new FakeClock();
    const sent: string[] = [];
    const answers: ((kind: Answer['kind']) => void)[] = [];
    const subscriptions = new ServerSubscriptions({
      clock,
      throttle: new ServerThrottle(clock),
      session: {
        server: 'a',
        closedBy: undefined,
        request: (method, params) => {
          sent.push(`${method} ${params}`);
          return new Promise<Answer>((resolve) =>
            answers.push((kind) => resolve({ kind, bytes: Buffer.from('{"code":-32602}'), mayHold: 0 })),
          );
        },
      },
      uris: () => ['file:///a'],
      clean: (text) => text,
      onProblem: (error) => {
        throw error;
      },
    });
    const accepted = subscriptions.subscribed('file:///a');
    await clock.advanceAsync(0);
    subscriptions.renewed();
    subscriptions.update();
    answers[0]?.(kind);
    await clock.advanceAsync(0);
    expect(sent).toEqual(Array(2).fill('resources/subscribe {"uri":"file:///a"}'));
    answers[1]?.('result');
    await accepted;
    subscriptions.update();
    await clock.advanceAsync(60_000);
    expect(sent).toHaveLength(2);
  },
);

test('W4 a subscription that ends each session is given up, and its subscriber gets the error', async () => {
  const clock = new FakeClock();
  let sent = 0;
  const subscriptions: ServerSubscriptions = new ServerSubscriptions({
    clock,
    throttle: new ServerThrottle(clock),
    session: {
      server: 'a',
      closedBy: undefined,
      async request() {
        sent++;
        // The bound of the test itself: a request without an answer.
        if (sent > 50) return new Promise<Answer>(() => {});
        subscriptions.renewed();
        throw new HostError('transport', 'the server no longer knows the session', { reason: 'session_expired' });
      },
    },
    uris: () => ['file:///a'],
    clean: (text) => text,
    onProblem: () => {},
  });
  const refused = subscriptions.subscribed('file:///a').catch((error: unknown) => error);
  await clock.advanceAsync(0);
  expect(sent).toBe(3);
  expect(await refused).toMatchObject({ details: { reason: 'session_expired' } });
});
