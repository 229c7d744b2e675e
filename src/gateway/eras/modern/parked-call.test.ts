import { describe, expect, test } from 'vitest';
import {
  bridged,
  fakeExchange,
  inbound,
  legacyServer,
  modernResult,
  parsed,
  settled,
} from '../../../../test/fakes/bridge-exchange.js';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import { InboundRequest } from '../../../wire/inbound-requests.js';
import type { BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { createModernBridge } from './bridge.js';
import { ParkedCalls } from './parked-call.js';

const formParams = '{"message":"who?"}';
const done = modernResult('{"resultType":"complete","content":[]}');
const modern = (more = {}) => fakeExchange('modern', more);

function bench() {
  const clock = new FakeClock();
  const calls = new ParkedCalls();
  return { clock, calls, bridge: createModernBridge({ clock, calls }) };
}

/** A call whose server has sent one question, and whose client has received it. */
async function parkedCall(exchange = modern(), on = bench()) {
  const server = legacyServer();
  const first = on.bridge.relay(bridged(exchange, server.script));
  const name = server.ask('elicitation/create', formParams);
  await on.clock.advanceAsync(5);
  return { ...on, server, name, requestState: parsed(await first).requestState };
}

describe('modern client, legacy server that asks in the middle of a call', () => {
  test('the call is parked, the client answers with its next request, and the server continues', async () => {
    const { bridge, clock, calls } = bench();
    const server = legacyServer();
    const exchange = modern();
    const moved: unknown[] = [];
    const request = bridged(exchange, server.script, { moveTo: (to) => void moved.push(to) });
    const first = bridge.relay(request);
    const name = server.ask('elicitation/create', formParams, 1);
    const roots = server.ask('roots/list', undefined, 2);
    await clock.advanceAsync(5);
    const asked = parsed(await first);
    expect(asked).toEqual({
      resultType: 'input_required',
      inputRequests: {
        'ask-1': { method: 'elicitation/create', params: { message: 'who?' } },
        'ask-2': { method: 'roots/list' },
      },
      requestState: expect.stringMatching(/^[\w-]+$/),
    });
    exchange.leave();
    expect(server.isCancelled()).toBe(false);
    expect(calls.size).toBe(1);

    const inputResponses = Buffer.from('{"ask-1":{"action":"accept","big":12345678901234567890},"ask-2":{"roots":[]}}');
    const back = modern();
    const second = bridged(back, () => done, { inputResponses, requestState: asked.requestState });
    const final = bridge.relay(second);
    expect(moved).toEqual([back]);
    expect(name.answers).toHaveLength(1);
    expect(roots.answers).toEqual([{ jsonrpc: '2.0', id: 2, result: { roots: [] } }]);
    server.finish('{"content":[{"type":"text","text":"ada"}]}');
    expect(parsed(await final)).toEqual({ content: [{ type: 'text', text: 'ada' }] });
    expect([request.sent.length, second.sent.length]).toEqual([1, 0]);
    expect([calls.size, calls.answerBytes.used, clock.pendingTimers]).toEqual([0, 0, 0]);
  });

  test('unanswered questions are sent again, together with new ones', async () => {
    const { bridge, clock } = bench();
    const server = legacyServer();
    const first = bridge.relay(bridged(modern(), server.script));
    const one = server.ask('elicitation/create', formParams, 1);
    const two = server.ask('elicitation/create', '{"message":"two?"}', 2);
    await clock.advanceAsync(5);
    const { requestState } = parsed(await first);
    const three = server.ask('sampling/createMessage', '{"messages":[]}', 3);
    const inputResponses = Buffer.from('{"ask-1":{"action":"decline"},"ask-2":"no object","ask-3":{"guessed":1}}');
    const second = bridge.relay(bridged(modern(), () => done, { inputResponses, requestState }));
    await clock.advanceAsync(5);
    const again = parsed(await second);
    expect(Object.keys(again.inputRequests)).toEqual(['ask-2', 'ask-3']);
    expect([one, two, three].map(({ answers }) => answers.length)).toEqual([1, 0, 0]);
    expect(again.requestState).not.toBe(requestState);

    const used = await bridge.relay(bridged(modern(), () => done, { inputResponses, requestState }));
    expect(parsed(used)).toMatchObject({ code: -32602, data: { fault: 'not_waiting' } });
    expect([two, three].map(({ answers }) => answers.length)).toEqual([0, 0]);
  });

  test('the server may answer while no client waits: the answer is stored for the next round, once', async () => {
    const { bridge, clock, calls, server, name, requestState } = await parkedCall();
    server.finish();
    await settled();
    expect(name.answers).toEqual([expect.objectContaining({ error: expect.objectContaining({ code: -32603 }) })]);
    expect(calls.answerBytes.used).toBe('{"content":[]}'.length);
    expect(parsed(await bridge.relay(bridged(modern(), () => done, { requestState })))).toEqual({ content: [] });
    expect(parsed(await bridge.relay(bridged(modern(), () => done, { requestState })))).toMatchObject({ code: -32602 });
    expect([calls.size, calls.answerBytes.used, clock.pendingTimers]).toEqual([0, 0, 0]);
  });

  test('only the calls that wait for a client that cannot come back are cancelled and forgotten', async () => {
    const on = bench();
    const adas = await parkedCall(modern(), on);
    const bobs = await parkedCall(modern({ principal: 'bob' }), on);
    const busy = legacyServer();
    void on.bridge.relay(bridged(modern(), busy.script));
    busy.ask('elicitation/create', formParams);
    on.bridge.endWaiting?.(({ principal }) => principal.id === 'ada');
    expect([adas, bobs].map(({ server }) => server.isCancelled())).toEqual([true, false]);
    expect(busy.isCancelled()).toBe(false);
    expect(adas.name.answers).toEqual([expect.objectContaining({ error: expect.objectContaining({ code: -32603 }) })]);
    const { requestState } = adas;
    const late = await on.bridge.relay(bridged(modern(), () => done, { requestState }));
    expect(parsed(late)).toMatchObject({ data: { fault: 'not_waiting' } });
    on.bridge.close?.();
    expect(bobs.server.isCancelled()).toBe(true);
    // The question of `busy` would now be sent, but its client cannot continue the call any more.
    await on.clock.advanceAsync(5);
    expect(busy.isCancelled()).toBe(true);
    expect([on.calls.size, on.clock.pendingTimers]).toEqual([0, 0]);
  });

  test('a client whose role changed while it waited continues the call in its new role', async () => {
    const { bridge, clock, server, requestState } = await parkedCall();
    const inputResponses = Buffer.from('{"ask-1":{"action":"accept"}}');
    const waiting = modern();
    const second = bridge.relay(bridged(waiting, () => done, { inputResponses, requestState }));
    const principal = { ...waiting.client.principal, role: 'reader' };
    Object.assign(waiting, { client: { ...waiting.client, principal } });
    server.ask('elicitation/create', formParams);
    await clock.advanceAsync(5);
    const again = parsed(await second);
    const more = { inputResponses: Buffer.from('{"ask-2":{}}'), requestState: again.requestState };
    const third = bridge.relay(bridged(modern({ role: 'reader' }), () => done, more));
    server.finish();
    expect(parsed(await third)).toEqual({ content: [] });
  });

  test('a call whose client does not come back is cancelled and forgotten', async () => {
    const { bridge, clock, calls, server, name, requestState } = await parkedCall();
    await clock.advanceAsync(300_000 - 1);
    expect(server.isCancelled()).toBe(false);
    await clock.advanceAsync(1);
    expect(server.isCancelled()).toBe(true);
    expect(name.answers).toEqual([expect.objectContaining({ error: expect.anything() })]);
    expect([calls.size, clock.pendingTimers]).toEqual([0, 0]);
    expect(parsed(await bridge.relay(bridged(modern(), () => done, { requestState })))).toMatchObject({ code: -32602 });
  });

  test('a client that disconnects before its question or before its answer ends the call', async () => {
    const { bridge, clock, calls } = bench();
    const early = legacyServer();
    const exchange = modern();
    const first = bridge.relay(bridged(exchange, early.script));
    const name = early.ask('elicitation/create', formParams);
    exchange.leave();
    await expect(first).rejects.toMatchObject({ code: 'cancelled' });
    expect([early.isCancelled(), name.answers.length, calls.size, clock.pendingTimers]).toEqual([true, 1, 0, 0]);

    const { server: late, requestState } = await parkedCall(modern(), { bridge, clock, calls });
    const back = modern();
    const inputResponses = Buffer.from('{"ask-1":{"action":"accept"}}');
    const second = bridge.relay(bridged(back, () => done, { inputResponses, requestState }));
    expect(late.isCancelled()).toBe(false);
    back.leave();
    await expect(second).rejects.toMatchObject({ code: 'cancelled' });
    expect([late.isCancelled(), calls.size, clock.pendingTimers]).toEqual([true, 0, 0]);
  });

  test('a question without a declared capability is refused, and the call continues', async () => {
    const { bridge, clock } = bench();
    for (const capabilities of ['{}', '{"roots":{}}']) {
      const server = legacyServer();
      const relayed = bridge.relay(bridged(modern({ capabilities }), server.script));
      const { answers } = server.ask('elicitation/create', formParams);
      expect(answers).toEqual([
        { jsonrpc: '2.0', id: 7, error: { code: -32601, message: 'the client does not support elicitation' } },
      ]);
      expect(server.ask('vendor/ask').answers).toEqual([
        expect.objectContaining({ error: expect.objectContaining({ code: -32601 }) }),
      ]);
      server.finish();
      expect(parsed(await relayed)).toEqual({ content: [] });
    }
    expect(clock.pendingTimers).toBe(0);
  });

  test('a client that returns with fewer capabilities is not asked again for the missing ones', async () => {
    const { bridge, server, name, requestState } = await parkedCall();
    const second = bridge.relay(bridged(modern({ capabilities: '{"roots":{}}' }), () => done, { requestState }));
    expect(name.answers).toEqual([expect.objectContaining({ error: expect.objectContaining({ code: -32601 }) })]);
    server.finish();
    expect(parsed(await second)).toEqual({ content: [] });
  });

  test('a question that the server cancels is not sent', async () => {
    const { bridge, clock } = bench();
    const server = legacyServer();
    const first = bridge.relay(bridged(modern(), server.script));
    server.ask('elicitation/create', formParams).request.cancel();
    expect(clock.pendingTimers).toBe(0);
    server.finish();
    expect(parsed(await first)).toEqual({ content: [] });
  });

  test('at most 16 calls of one caller and 256 calls in total are parked; the next question is refused as overloaded', async () => {
    const { bridge, clock, calls } = bench();
    const parkedOf = async (principal: string) => {
      const server = legacyServer();
      void bridge.relay(bridged(modern({ principal }), server.script)).catch(() => {});
      const { answers } = server.ask('elicitation/create', formParams);
      return { server, answers };
    };
    const parkedOnes = [];
    for (let i = 0; i < 16; i++) parkedOnes.push(await parkedOf('ada'));
    const overloaded = [
      expect.objectContaining({
        error: expect.objectContaining({ code: -31015, message: expect.stringMatching(/^overloaded/) }),
      }),
    ];
    expect((await parkedOf('ada')).answers).toEqual(overloaded);
    for (let i = 16; i < 256; i++) parkedOnes.push(await parkedOf(`other ${i >> 4}`));
    expect((await parkedOf('somebody')).answers).toEqual(overloaded);
    expect(calls.size).toBe(256);
    expect(parkedOnes.every(({ answers }) => answers.length === 0)).toBe(true);
    parkedOnes[0]?.server.finish();
    await settled();
    expect((await parkedOf('ada')).answers).toEqual([]);
    await clock.advanceAsync(400_000);
    expect([calls.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  test('a call that ends releases only its own place', async () => {
    const { bridge, calls } = bench();
    const parked = () => {
      const server = legacyServer();
      void bridge.relay(bridged(modern(), server.script));
      return { server, isRefused: server.ask('elicitation/create', formParams).answers.length > 0 };
    };
    const first = Array.from({ length: 16 }, parked);
    for (const { server } of first.slice(1)) server.finish();
    await settled();
    expect(calls.size).toBe(1);
    expect(Array.from({ length: 16 }, parked).map(({ isRefused }) => isRefused)).toEqual([
      ...Array(15).fill(false),
      true,
    ]);
  });

  test('after the client has returned, its first exchange no longer affects the call', async () => {
    const exchange = modern();
    const { bridge, server, requestState } = await parkedCall(exchange);
    const inputResponses = Buffer.from('{"ask-1":{"action":"accept"}}');
    const second = bridge.relay(bridged(modern(), () => done, { inputResponses, requestState }));
    exchange.leave();
    expect(server.isCancelled()).toBe(false);
    server.finish();
    expect(parsed(await second)).toEqual({ content: [] });
  });

  test('a client that returns but has already disconnected ends the call', async () => {
    const { bridge, clock, calls, server, requestState } = await parkedCall();
    const gone = modern();
    gone.leave();
    await expect(bridge.relay(bridged(gone, () => done, { requestState }))).rejects.toMatchObject({
      code: 'cancelled',
    });
    expect([server.isCancelled(), calls.size, clock.pendingTimers]).toEqual([true, 0, 0]);
  });

  test('a server that cancels a question while it receives the answer to another one leaves no timer', async () => {
    const { bridge, clock } = bench();
    let options: BridgeOptions = {};
    const first = bridge.relay(
      bridged(modern(), (given) => {
        options = given;
        return new Promise<Relayed>(() => {});
      }),
    );
    const other = inbound('roots/list');
    const hasty = new InboundRequest('1', 'elicitation/create', Buffer.from(formParams), undefined, () =>
      other.request.cancel(),
    );
    options.onServerRequest?.(hasty);
    options.onServerRequest?.(other.request);
    await clock.advanceAsync(5);
    const inputResponses = Buffer.from('{"ask-1":{"action":"accept"}}');
    const { requestState } = parsed(await first);
    void bridge.relay(bridged(modern(), () => done, { inputResponses, requestState }));
    // Nothing is left to ask, so nothing is gathered.
    expect([clock.pendingTimers, other.answers.length]).toEqual([0, 0]);
  });

  describe.each([
    ['before', ['elicitation/create', 'sampling/createMessage']],
    ['after', ['sampling/createMessage', 'elicitation/create']],
  ])('a question without a declared capability, refused %s a question with one', (_when, methods) => {
    const start = () => {
      const { bridge, clock } = bench();
      const server = legacyServer();
      const relayed = bridge.relay(bridged(modern({ capabilities: '{"sampling":{}}' }), server.script));
      for (const [at, method] of methods.entries()) server.ask(method, '{"messages":[]}', at);
      return { clock, server, relayed };
    };

    test('the other question waits for the server to end the call, so that no client gets a useless question', async () => {
      const { clock, server, relayed } = start();
      await clock.advanceAsync(249);
      server.finish('{"content":[],"isError":true}');
      expect(parsed(await relayed)).toEqual({ content: [], isError: true });
      expect(clock.pendingTimers).toBe(0);
    });

    test('the other question is sent if the server does not end the call', async () => {
      const { clock, relayed } = start();
      await clock.advanceAsync(250);
      const { inputRequests } = parsed(await relayed);
      expect(Object.values(inputRequests)).toEqual([{ method: 'sampling/createMessage', params: { messages: [] } }]);
    });
  });

  test('a question is stored as a copy, because its buffer is reused', async () => {
    const { bridge, clock } = bench();
    const server = legacyServer();
    const first = bridge.relay(bridged(modern(), server.script));
    server.ask('elicitation/create', formParams).request.params?.fill(0x20);
    await clock.advanceAsync(5);
    expect(parsed(await first).inputRequests['ask-1'].params).toEqual(JSON.parse(formParams));
  });

  test('a failed call is reported with its own error', async () => {
    const { bridge } = bench();
    const server = legacyServer();
    const relayed = bridge.relay(bridged(modern(), server.script));
    const error = new HostError('timeout', 'too slow');
    server.fail(error);
    await expect(relayed).rejects.toBe(error);
  });
});
