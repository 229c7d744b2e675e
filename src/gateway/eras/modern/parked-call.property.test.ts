import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  bridged,
  type FakeExchange,
  fakeExchange,
  inbound,
  legacyResult,
  parsed,
  settled,
} from '../../../../test/fakes/bridge-exchange.js';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import type { Bridge, BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { createModernBridge } from './bridge.js';
import { ParkedCalls } from './parked-call.js';

const acts = [
  ...['ask', 'ask', 'ask', 'askTwo', 'withdraw', 'resume', 'resume', 'resume', 'resumePart', 'resumeNothing'],
  ...['resumeOld', 'resumeAsAnother', 'leave', 'finish', 'fail', 'wait', 'wait', 'wait', 'wait', 'wait'],
] as const;

const history = fc.array(
  fc.record({
    act: fc.constantFrom(...acts),
    call: fc.nat(2),
    pick: fc.nat(7),
    byMs: fc.constantFrom(0, 1, 5, 5, 5, 1_000, 1_000, 299_999, 300_000),
  }),
  { minLength: 10, maxLength: 60, size: 'max' },
);
type Moves = typeof history extends fc.Arbitrary<infer T> ? T : never;

interface Ask {
  readonly request: InboundRequest;
  readonly answers: { id: number; result?: { to: number; call: number }; error?: unknown }[];
  readonly id: number;
  isWithdrawn: boolean;
}

/** One call, its server and its client. */
class Life {
  readonly asks: Ask[] = [];
  readonly states: string[] = [];
  /** The keys of the last reply, each with the id of the server's request. */
  shown = new Map<string, number>();
  waits = 0;
  ends = 0;
  sends = 0;
  exchange: FakeExchange | undefined;
  #options: BridgeOptions = {};
  #resolve: (relayed: Relayed) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  readonly #bridge: Bridge;
  readonly #call: number;

  constructor(bridge: Bridge, call: number) {
    this.#bridge = bridge;
    this.#call = call;
    this.relay(undefined, undefined);
  }

  relay(requestState: string | undefined, inputResponses: string | undefined, principal = 'ada'): void {
    const exchange = fakeExchange('modern', { principal });
    if (principal === 'ada') this.exchange = exchange;
    const script = (options: BridgeOptions) => {
      this.sends++;
      this.#options = options;
      return new Promise<Relayed>((resolve, reject) => {
        this.#resolve = resolve;
        this.#reject = reject;
        options.signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'gone')));
      });
    };
    this.waits++;
    const request = bridged(exchange, script, {
      requestState,
      inputResponses: inputResponses === undefined ? undefined : Buffer.from(inputResponses),
      identity: () => Buffer.from(`call ${this.#call}`),
    });
    this.#bridge.relay(request).then(
      (relayed) => this.#told(relayed),
      () => this.ends++,
    );
  }

  #told(relayed: Relayed): void {
    this.ends++;
    if (relayed.era !== 'modern' || relayed.kind === 'error') return;
    const { inputRequests, requestState } = parsed(relayed);
    this.states.push(requestState);
    this.shown.clear();
    for (const [key, { params }] of Object.entries<{ params: { id: number; call: number } }>(inputRequests)) {
      expect(params.call).toBe(this.#call);
      this.shown.set(key, params.id);
    }
  }

  ask(): void {
    const id = this.asks.length + 1;
    const { request, answers } = inbound('elicitation/create', `{"id":${id},"call":${this.#call}}`, id);
    this.asks.push({ request, answers: answers as Ask['answers'], id, isWithdrawn: false });
    this.#options.onServerRequest?.(request);
  }

  withdraw(pick: number): void {
    const ask = this.asks[pick % (this.asks.length || 1)];
    if (!ask || ask.answers.length > 0) return;
    ask.isWithdrawn = true;
    ask.request.cancel();
  }

  resume(state: string | undefined, count: number, principal?: string): void {
    if (state === undefined) return;
    const shown = [...this.shown].slice(0, count);
    const responses = shown.map(([key, to]) => `"${key}":{"to":${to},"call":${this.#call}}`).join(',');
    this.relay(state, `{${responses}}`, principal);
  }

  finish(): void {
    this.#resolve(legacyResult('{"content":[]}'));
  }

  fail(): void {
    this.#reject(new HostError('transport', 'lost'));
  }

  check(): void {
    expect(this.ends).toBe(this.waits);
    expect(this.sends).toBe(1);
    for (const { answers, isWithdrawn, id } of this.asks) {
      expect(answers.length).toBe(isWithdrawn ? 0 : 1);
      for (const { id: to, result, error } of answers) {
        expect(to).toBe(id);
        // The server got the answer to this question of this call, not to another one.
        if (!error) expect(result).toEqual({ to: id, call: this.#call });
      }
    }
  }
}

function perform(life: Life, { act, pick }: Moves[number]): void {
  switch (act) {
    case 'askTwo':
      life.ask();
      return life.ask();
    case 'ask':
      return life.ask();
    case 'withdraw':
      return life.withdraw(pick);
    case 'resume':
      return life.resume(life.states.at(-1), 99);
    case 'resumePart':
      return life.resume(life.states.at(-1), 1);
    case 'resumeNothing':
      return life.resume(life.states.at(-1), 0);
    case 'resumeOld':
      return life.resume(life.states[pick], 99);
    case 'resumeAsAnother':
      return life.resume(life.states.at(-1), 99, 'bob');
    case 'leave':
      return life.exchange?.leave();
    case 'finish':
      return life.finish();
    case 'fail':
      return life.fail();
    case 'wait':
      return;
    default:
      return act satisfies never;
  }
}

/** Situations that the histories must cover together, otherwise they prove little. */
const seen = { answered: 0, refused: 0, withdrawn: 0, rounds: 0 };

async function live(moves: Moves): Promise<void> {
  const clock = new FakeClock();
  const calls = new ParkedCalls();
  const bridge = createModernBridge({ clock, calls });
  const lives = [0, 1, 2].map((call) => new Life(bridge, call));
  for (const move of moves) {
    perform(lives[move.call] as Life, move);
    await (move.act === 'wait' ? clock.advanceAsync(move.byMs) : settled());
  }
  for (const life of lives) life.finish();
  await clock.advanceAsync(400_000);
  for (const life of lives) {
    life.check();
    seen.rounds = Math.max(seen.rounds, life.states.length);
    for (const { answers, isWithdrawn } of life.asks) {
      if (isWithdrawn) seen.withdrawn++;
      else if (answers[0]?.error) seen.refused++;
      else seen.answered++;
    }
  }
  expect([calls.size, calls.answerBytes.used, clock.pendingTimers]).toEqual([0, 0, 0]);
}

test('in every sequence each question and each wait ends once, and nothing is left', { timeout: 60_000 }, async () => {
  await fc.assert(fc.asyncProperty(history, live), { numRuns: 300 });
  expect(Math.min(seen.answered, seen.refused, seen.withdrawn)).toBeGreaterThan(10);
  expect(seen.rounds).toBeGreaterThan(2);
});
