import { describe, expect, test } from 'vitest';
import {
  bridged,
  everything,
  fakeExchange,
  inbound,
  modernResult,
  parsed,
} from '../../../../test/fakes/bridge-exchange.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import { seededRandom } from '../../../kernel/random.js';
import { modernEra } from '../../../session/eras/modern/modern-era.js';
import type { Relayed } from '../../bridge/bridged-request.js';
import { createBridge } from '../../eras/eras.js';

const form = '{"method":"elicitation/create","params":{"message":"who?"}}';
const formParams = '{"message":"who?"}';
const asks = (inputRequests: string, state?: string) =>
  modernResult(
    `{"resultType":"input_required","inputRequests":{${inputRequests}}${state === undefined ? '' : `,"requestState":${state}`}}`,
  );
const done = modernResult('{"resultType":"complete","content":[]}');
const modern = (more = {}) => fakeExchange('modern', more);

function bench() {
  const clock = new FakeClock();
  return { clock, bridge: createBridge({ clock, random: seededRandom(1) }) };
}

describe('modern client, modern server', () => {
  test('an answer is forwarded unchanged, and the server receives the capabilities of the client', async () => {
    const { bridge } = bench();
    const request = bridged(modern(), () => done);
    expect(await bridge.relay(request)).toBe(done);
    expect(request.sent).toEqual([expect.objectContaining({ capabilities: everything })]);
    expect(request.sent[0]?.members).toBeUndefined();
  });

  test('the client gets the state sealed; the server gets back its own state and the answers, byte for byte', async () => {
    const { bridge } = bench();
    const state = '"s\\u0041\\/é"';
    const first = await bridge.relay(bridged(modern(), () => asks(`"k":${form}`, state)));
    const { inputRequests, requestState } = parsed(first);
    expect(inputRequests).toEqual({ k: JSON.parse(form) });
    expect(requestState).toMatch(/^[\w-]{100,}$/);
    const inputResponses = Buffer.from('{ "k" : {"action":"accept","n":12345678901234567890}, "extra":1 }');
    const second = bridged(modern(), () => done, { inputResponses, requestState });
    expect(await bridge.relay(second)).toBe(done);
    expect(second.sent[0]?.members).toBe(`"inputResponses":${inputResponses},"requestState":${state}`);
  });

  test('a call continues without state if the server sent none', async () => {
    const { bridge } = bench();
    const result = asks(`"k":${form}`);
    expect(await bridge.relay(bridged(modern(), () => result))).toBe(result);
    const second = bridged(modern(), () => done, { inputResponses: Buffer.from('{"k":{}}') });
    await bridge.relay(second);
    expect(second.sent[0]?.members).toBe('"inputResponses":{"k":{}}');
  });

  test('a call continues also after a result with state but without questions', async () => {
    const { bridge } = bench();
    const first = await bridge.relay(
      bridged(modern(), () => modernResult('{"resultType":"input_required","requestState":"s"}')),
    );
    const second = bridged(modern(), () => done, { requestState: parsed(first).requestState });
    await bridge.relay(second);
    expect(second.sent[0]?.members).toBe('"requestState":"s"');
  });

  test.each([
    ['changed', {}, (state: string) => `${state.slice(0, -1)}${state.endsWith('A') ? 'B' : 'A'}`, 'tampered'],
    ['not ours', {}, () => 'tampered', 'tampered'],
    ['of another caller', { principal: 'bob' }, (state: string) => state, 'other_caller'],
  ])('state that is %s never reaches the server', async (_, client, change, fault) => {
    const { bridge } = bench();
    const { requestState } = parsed(await bridge.relay(bridged(modern(), () => asks(`"k":${form}`, '"s"'))));
    const second = bridged(modern(client), () => done, { requestState: change(requestState) });
    const told = await bridge.relay(second);
    expect(told).toMatchObject({ kind: 'error', era: 'modern' });
    expect(parsed(told)).toMatchObject({ code: -32602, data: { reason: 'invalid_request_state', fault } });
    expect(second.sent).toEqual([]);
  });

  test('state that is not a string is refused', async () => {
    const request = bridged(modern(), () => done, { requestState: 7 });
    expect(parsed(await bench().bridge.relay(request))).toMatchObject({ code: -32602 });
    expect(request.sent).toEqual([]);
  });

  test('state is valid for its own request only, and for ten minutes', async () => {
    const { bridge, clock } = bench();
    const { requestState } = parsed(await bridge.relay(bridged(modern(), () => asks(`"k":${form}`, '"s"'))));
    const other = bridged(modern(), () => done, { requestState, identity: () => Buffer.from('other') });
    expect(parsed(await bridge.relay(other))).toMatchObject({ code: -32602, data: { fault: 'other_request' } });
    clock.advance(600_000);
    const late = bridged(modern(), () => done, { requestState });
    expect(parsed(await bridge.relay(late))).toMatchObject({ code: -32602, data: { fault: 'expired' } });
    expect([...other.sent, ...late.sent]).toEqual([]);
  });

  test('questions without a declared capability do not reach the client', async () => {
    const { bridge } = bench();
    const request = bridged(modern({ capabilities: '{"elicitation":{}}' }), () =>
      asks(
        `"a":${form},"b":{"method":"roots/list"},"c":{"method":"elicitation/create","params":{"mode":"url"}}`,
        '"s"',
      ),
    );
    const told = await bridge.relay(request);
    expect(told.kind).toBe('error');
    expect(parsed(told)).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { elicitation: { url: {} }, roots: {} } },
    });
  });

  test('the server’s own error for a missing capability is forwarded unchanged', async () => {
    const { bridge } = bench();
    const error: Relayed = { kind: 'error', bytes: Buffer.from('{"code":-32021,"message":"m"}'), era: 'modern' };
    expect(await bridge.relay(bridged(modern({ capabilities: '{}' }), () => error))).toBe(error);
    expect(await bridge.relay(bridged(modern(), () => error))).toBe(error);
  });

  test('an input_required result without questions and state fails the call as a protocol error', async () => {
    const { bridge } = bench();
    const request = bridged(modern(), () => modernResult('{"resultType":"input_required"}'));
    await expect(bridge.relay(request)).rejects.toMatchObject({ code: 'protocol_error' });
    const plain = bridged(modern({ capabilities: '{}' }), () => modernResult('{"resultType":"input_required"}'));
    await expect(bridge.relay(plain)).rejects.toMatchObject({ code: 'protocol_error' });
  });

  test('for a server that is known to be modern, parking is not prepared', async () => {
    const { bridge } = bench();
    const asked = inbound('elicitation/create', formParams);
    const request = bridged(
      modern(),
      (options) => {
        options.onServerRequest?.(asked.request);
        return asks(`"k":${form}`, '"s"');
      },
      { serverEra: modernEra },
    );
    expect(parsed(await bridge.relay(request)).requestState).toMatch(/^[\w-]{100,}$/);
    expect(request.sent[0]).not.toHaveProperty('signal');
    // If the server turns out to be legacy, its question is refused and does not wait.
    expect(asked.answers).toEqual([expect.objectContaining({ error: expect.objectContaining({ code: -32603 }) })]);
  });

  test('when a client disconnects, its call is cancelled', async () => {
    const { bridge, clock } = bench();
    const exchange = modern();
    const request = bridged(exchange, () => new Promise<Relayed>(() => {}));
    const relayed = bridge.relay(request);
    exchange.leave();
    await expect(relayed).rejects.toMatchObject({ code: 'cancelled' });
    expect(request.sent[0]?.signal?.aborted).toBe(true);
    expect(clock.pendingTimers).toBe(0);
  });
});
