import { describe, expect, test } from 'vitest';
import {
  bridged,
  everything,
  fakeExchange,
  inbound,
  legacyResult,
  modernResult,
  parsed,
  settled,
} from '../../../../test/fakes/bridge-exchange.js';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import { seededRandom } from '../../../kernel/random.js';
import type { BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { createBridge } from '../../eras/eras.js';

const formParams = '{"message":"who?","n":12345678901234567890}';
const form = `{"method":"elicitation/create","params":${formParams}}`;
const asks = (inputRequests: string, state = '"s\\u0041"') =>
  modernResult(`{"resultType":"input_required","inputRequests":{${inputRequests}},"requestState":${state}}`);
const done = modernResult('{"resultType":"complete","content":[]}');

function bench() {
  const clock = new FakeClock();
  return { clock, bridge: createBridge({ clock, random: seededRandom(1) }) };
}

test('members of the modern era that a legacy client sends do not reach the server', async () => {
  const inputResponses = Buffer.from('{"a":{}}');
  const request = bridged(fakeExchange('legacy'), () => done, { inputResponses, requestState: 7 });
  await bench().bridge.relay(request);
  expect(request.sent.map(({ members }) => members)).toEqual([undefined]);
});

describe('legacy client, modern server', () => {
  test('the client gets the questions as requests, in order, and the call is sent again with its answers', async () => {
    const { bridge, clock } = bench();
    const exchange = fakeExchange('legacy');
    const request = bridged(exchange, (_, round) =>
      round === 1 ? asks(`"b":${form},"a":{"method":"roots/list"}`) : done,
    );
    const relayed = bridge.relay(request);
    await settled();
    expect(exchange.asked.map(({ method, params }) => [method, params])).toEqual([
      ['elicitation/create', formParams],
      ['roots/list', undefined],
    ]);
    expect(exchange.asked.map(({ limits }) => limits.deadlineAtMs)).toEqual([300_000, 300_000]);
    exchange.asked[1]?.answer('result', '{"roots":[]}');
    exchange.asked[0]?.answer('result', '{"action":"accept"}');
    expect(await relayed).toBe(done);
    expect(request.sent.map(({ members }) => members)).toEqual([
      undefined,
      '"inputResponses":{"b":{"action":"accept"},"a":{"roots":[]}},"requestState":"s\\u0041"',
    ]);
    expect(request.sent.map(({ capabilities }) => capabilities)).toEqual([everything, everything]);
    expect(clock.pendingTimers).toBe(0);
  });

  test('a question with a URL gets the elicitation id that the legacy era requires', async () => {
    const { bridge } = bench();
    const exchange = fakeExchange('legacy');
    const own = '{"mode":"url","url":"https://a.example","elicitationId":"mine"}';
    const request = bridged(exchange, (_, round) =>
      round === 1
        ? asks(
            `"a":{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example"}},"b":{"method":"elicitation/create","params":${own}}`,
          )
        : done,
    );
    const relayed = bridge.relay(request);
    await settled();
    expect(JSON.parse(exchange.asked[0]?.params ?? '')).toEqual({
      mode: 'url',
      url: 'https://a.example',
      elicitationId: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    expect(exchange.asked[1]?.params).toBe(own);
    for (const { answer } of exchange.asked) answer('result', '{"action":"accept"}');
    expect(await relayed).toBe(done);
  });

  test('a call is sent again after a pause if the server returns a state without questions', async () => {
    const { bridge, clock } = bench();
    const request = bridged(fakeExchange('legacy'), (_, round) =>
      round === 1 ? modernResult('{"resultType":"input_required","requestState":"s"}') : done,
    );
    const relayed = bridge.relay(request);
    await clock.advanceAsync(249);
    expect(request.sent).toHaveLength(1);
    await clock.advanceAsync(1);
    expect(await relayed).toBe(done);
    expect(request.sent[1]?.members).toBe('"requestState":"s"');
  });

  test('a call fails if its server still requests input after eight rounds', async () => {
    const { bridge } = bench();
    const exchange = fakeExchange('legacy');
    const request = bridged(exchange, () => asks(`"a":${form}`));
    const relayed = bridge.relay(request);
    for (let round = 0; round < 9; round++) {
      await settled();
      exchange.asked[round]?.answer('result', '{"action":"accept"}');
    }
    expect(parsed(await relayed)).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('after 8 rounds') }],
    });
    expect([request.sent.length, exchange.asked.length]).toEqual([9, 8]);
  });

  test.each([
    [
      'tools/call',
      { isError: true, content: [{ type: 'text', text: expect.stringContaining('does not support roots') }] },
    ],
    ['prompts/get', { code: -32603, message: expect.stringContaining('does not support roots') }],
  ])('no question is sent if the client did not declare the capability for one of them: %s', async (method, told) => {
    const { bridge } = bench();
    const exchange = fakeExchange('legacy', { capabilities: '{"elicitation":{}}', method });
    const request = bridged(exchange, () => asks(`"a":${form},"b":{"method":"roots/list"}`));
    const relayed = await bridge.relay(request);
    expect(parsed(relayed)).toMatchObject(told);
    expect(relayed.era).toBe('legacy');
    expect([exchange.asked.length, request.sent.length]).toEqual([0, 1]);
  });

  test.each([
    [
      'an error',
      (exchange: ReturnType<typeof fakeExchange>) =>
        exchange.asked[0]?.answer('error', '{"code":-1,"message":"user said no"}'),
      'user said no',
    ],
    [
      'a missing answer',
      (exchange: ReturnType<typeof fakeExchange>) =>
        exchange.asked[0]?.fail(new HostError('timeout', 'no answer in time')),
      'no answer in time',
    ],
  ])('%s of the client ends the call and its other questions', async (_, act, why) => {
    const { bridge } = bench();
    const exchange = fakeExchange('legacy');
    const request = bridged(exchange, () => asks(`"a":${form},"b":${form}`));
    const relayed = bridge.relay(request);
    await settled();
    act(exchange);
    expect(parsed(await relayed)).toMatchObject({ isError: true, content: [{ text: expect.stringContaining(why) }] });
    expect(exchange.asked[1]?.limits.signal?.aborted).toBe(true);
    expect(request.sent).toHaveLength(1);
  });

  test('a client that cancels gets no more questions', async () => {
    const { bridge } = bench();
    const exchange = fakeExchange('legacy');
    const request = bridged(exchange, () => asks(`"a":${form}`));
    const relayed = bridge.relay(request);
    await settled();
    exchange.leave();
    await expect(relayed).rejects.toMatchObject({ code: 'cancelled' });
    expect(exchange.asked[0]?.limits.signal?.aborted).toBe(true);
    expect(request.sent).toHaveLength(1);
  });

  test('the server receives no client capabilities if the client cannot be reached', async () => {
    const { bridge } = bench();
    const request = bridged({ ...fakeExchange('legacy'), ask: undefined }, () => asks(`"a":${form}`));
    expect(parsed(await bridge.relay(request))).toMatchObject({ isError: true });
    expect(request.sent[0]?.capabilities).toBe('{}');
  });
});

describe('legacy client, legacy server', () => {
  /** Starts a call in which the server asks each question of `asked`. The call lasts until `finish` is called. */
  function middle(exchange: ReturnType<typeof fakeExchange>, ...asked: ReturnType<typeof inbound>[]) {
    let finish: () => void = () => {};
    const script = (options: BridgeOptions) => {
      for (const { request } of asked) options.onServerRequest?.(request);
      return new Promise<Relayed>((resolve) => {
        finish = () => resolve(legacyResult('{"content":[]}'));
      });
    };
    const { bridge } = bench();
    const relayed = bridge.relay(bridged(exchange, script));
    return { relayed, finish: () => finish() };
  }

  test('question and answer are forwarded unchanged', async () => {
    const exchange = fakeExchange('legacy');
    const [first, second] = [
      inbound('elicitation/create', formParams, 1),
      inbound('sampling/createMessage', '{"messages":[]}', 2),
    ];
    const { relayed, finish } = middle(exchange, first, second);
    expect(exchange.asked.map(({ method, params }) => [method, params])).toEqual([
      ['elicitation/create', formParams],
      ['sampling/createMessage', '{"messages":[]}'],
    ]);
    exchange.asked[0]?.answer('result', '{"action":"accept"}');
    exchange.asked[1]?.answer('error', '{"code":-1,"message":"no","data":{"v":1}}');
    await settled();
    expect(first.answers).toEqual([{ jsonrpc: '2.0', id: 1, result: { action: 'accept' } }]);
    expect(second.answers).toEqual([{ jsonrpc: '2.0', id: 2, error: { code: -1, message: 'no', data: { v: 1 } } }]);
    finish();
    expect(parsed(await relayed)).toEqual({ content: [] });
  });

  test('a question that the server cancels is cancelled at the client, and not answered', async () => {
    const exchange = fakeExchange('legacy');
    const asked = inbound('elicitation/create', formParams);
    const { relayed, finish } = middle(exchange, asked);
    asked.request.cancel();
    await settled();
    expect(exchange.asked[0]?.limits.signal?.aborted).toBe(true);
    expect(asked.answers).toEqual([]);
    finish();
    await relayed;
  });

  test('a call that ends cancels its questions', async () => {
    const exchange = fakeExchange('legacy');
    const asked = inbound('elicitation/create', formParams);
    const { relayed, finish } = middle(exchange, asked);
    finish();
    await relayed;
    await settled();
    expect(exchange.asked[0]?.limits.signal?.aborted).toBe(true);
    expect(asked.answers).toEqual([{ jsonrpc: '2.0', id: 7, error: { code: -32603, message: 'the call has ended' } }]);
  });

  test('an answer that arrives after the call is ignored', async () => {
    const exchange = fakeExchange('legacy');
    let answer: () => void = () => {};
    const ask: typeof exchange.ask = () =>
      new Promise((resolve) => {
        answer = () => resolve({ kind: 'result', bytes: Buffer.from('{}'), mayHold: 0 });
      });
    const asked = inbound('roots/list');
    const { relayed, finish } = middle({ ...exchange, ask }, asked);
    finish();
    await relayed;
    answer();
    await settled();
    expect(asked.answers).toEqual([{ jsonrpc: '2.0', id: 7, error: { code: -32603, message: 'the call has ended' } }]);
  });

  test('if the client does not answer, the server gets an error with the reason', async () => {
    const exchange = fakeExchange('legacy');
    const asked = inbound('roots/list');
    const { relayed, finish } = middle(exchange, asked);
    exchange.asked[0]?.fail(new HostError('timeout', 'no answer in time'));
    await settled();
    expect(asked.answers).toEqual([{ jsonrpc: '2.0', id: 7, error: { code: -32603, message: 'no answer in time' } }]);
    finish();
    await relayed;
  });

  test.each([
    ['elicitation/create', '{"mode":"url"}', 'the client does not support elicitation by url'],
    ['sampling/createMessage', '{}', 'the client does not support sampling'],
    ['vendor/ask', '{}', "no client supports the request 'vendor/ask'"],
  ])('%s %s is refused if the client does not support it', async (method, params, message) => {
    const exchange = fakeExchange('legacy', { capabilities: '{"elicitation":{}}' });
    const asked = inbound(method, params);
    const { relayed, finish } = middle(exchange, asked);
    expect(asked.answers).toEqual([{ jsonrpc: '2.0', id: 7, error: { code: -32601, message } }]);
    expect(exchange.asked).toEqual([]);
    finish();
    await relayed;
  });

  test('at most 32 questions of one call wait at once', async () => {
    const exchange = fakeExchange('legacy');
    const asked = Array.from({ length: 33 }, (_, i) => inbound('roots/list', undefined, i));
    const { relayed, finish } = middle(exchange, ...asked);
    expect(exchange.asked).toHaveLength(32);
    expect(asked[32]?.answers).toEqual([expect.objectContaining({ error: expect.objectContaining({ code: -31015 }) })]);
    finish();
    await relayed;
  });
});
