import { describe, expect, test } from 'vitest';
import { bridged, fakeExchange, legacyResult, modernResult, parsed } from '../../../../test/fakes/bridge-exchange.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import { seededRandom } from '../../../kernel/random.js';
import type { Relayed } from '../../bridge/bridged-request.js';
import { createBridge } from '../../eras/eras.js';

const done = modernResult('{"resultType":"complete","content":[]}');
const modern = (more = {}) => fakeExchange('modern', more);

const bench = () => ({ bridge: createBridge({ clock: new FakeClock(), random: seededRandom(1) }) });

describe('modern client, legacy server that requires a visit to a URL first', () => {
  const required: Relayed = {
    kind: 'error',
    bytes: Buffer.from(
      '{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a.example","message":"sign in"}]}}',
    ),
    era: 'legacy',
  };

  test('the client is asked, and the request is sent again after the user has agreed', async () => {
    const { bridge } = bench();
    const { inputRequests, requestState } = parsed(await bridge.relay(bridged(modern(), () => required)));
    expect(inputRequests).toEqual({
      'url-1': {
        method: 'elicitation/create',
        params: { mode: 'url', elicitationId: 'e', url: 'https://a.example', message: 'sign in' },
      },
    });
    const declined = bridged(modern(), () => done, {
      requestState,
      inputResponses: Buffer.from('{"url-1":{"action":"decline"}}'),
    });
    expect(parsed(await bridge.relay(declined))).toMatchObject({ code: -32602 });
    const agreed = bridged(modern(), () => legacyResult('{"content":[]}'), {
      requestState,
      inputResponses: Buffer.from('{"url-1":{"action":"accept"}}'),
    });
    expect(parsed(await bridge.relay(agreed))).toEqual({ content: [] });
    expect([declined.sent.length, agreed.sent.length]).toEqual([0, 1]);
    expect(agreed.sent[0]?.members).toBeUndefined();
  });

  test('a client that cannot visit URLs gets the missing capability, in the form of its own era', async () => {
    const { bridge } = bench();
    const told = await bridge.relay(bridged(modern({ capabilities: '{"elicitation":{}}' }), () => required));
    expect(parsed(told)).toMatchObject({ code: -32021, data: { requiredCapabilities: { elicitation: { url: {} } } } });
  });
});
