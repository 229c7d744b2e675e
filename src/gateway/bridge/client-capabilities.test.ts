import { describe, expect, test } from 'vitest';
import { capabilitiesOf, everything, fakeExchange } from '../../../test/fakes/bridge-exchange.js';
import {
  acceptsRequests,
  type ClientCapability,
  forwardedCapabilities,
  isDeclared,
  neededCapability,
  requiredCapabilities,
} from './client-capabilities.js';

describe('the capability that a request needs', () => {
  test.each([
    ['elicitation/create', '{"message":"?"}', 'form', '{"elicitation":{}}'],
    ['elicitation/create', '{"mode":"form"}', 'form', '{"elicitation":{"form":{}}}'],
    ['elicitation/create', '{"mode":"url"}', 'url', '{"elicitation":{"url":{}}}'],
    ['sampling/createMessage', '{"messages":[]}', 'sampling', '{"sampling":{}}'],
    ['sampling/createMessage', '{"toolChoice":{}}', 'samplingTools', '{"sampling":{"tools":{}}}'],
    ['roots/list', undefined, 'roots', '{"roots":{}}'],
  ])('%s %s: %s', (method, params, need, declared) => {
    expect(neededCapability(method, params === undefined ? undefined : Buffer.from(params))).toBe(need);
    expect(isDeclared(need as ClientCapability, capabilitiesOf(declared))).toBe(true);
    expect(isDeclared(need as ClientCapability, capabilitiesOf('{}'))).toBe(false);
  });

  test('is undefined for an unknown method: no client supports it', () => {
    expect(neededCapability('vendor/ask', undefined)).toBeUndefined();
  });

  test('is not declared if the client declares the capability without the needed mode or member', () => {
    expect(isDeclared('url', capabilitiesOf('{"elicitation":{}}'))).toBe(false);
    expect(isDeclared('samplingTools', capabilitiesOf('{"sampling":{}}'))).toBe(false);
  });

  test('is written as the protocol defines it', () => {
    expect(requiredCapabilities(new Set(['form', 'url', 'sampling', 'samplingTools', 'roots']))).toBe(
      '{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}',
    );
    expect(requiredCapabilities(new Set(['sampling']))).toBe('{"sampling":{}}');
  });

  test('is one of elicitation, sampling and roots; a client that declares none of them receives no requests', () => {
    expect(acceptsRequests(capabilitiesOf('{"experimental":{}}'))).toBe(false);
    expect(acceptsRequests(capabilitiesOf('{"roots":{}}'))).toBe(true);
  });
});

describe('the client capabilities that a server receives', () => {
  const carried = (raw: string, isReachable = true) =>
    forwardedCapabilities(fakeExchange('modern', { capabilities: raw }).client, isReachable);

  test('are the JSON of the client, unchanged', () => {
    expect(carried(everything)).toBe(everything);
    expect(carried('{"sampling":{"x": 12345678901234567890}}')).toBe('{"sampling":{"x": 12345678901234567890}}');
    expect(carried('{}')).toBe('{}');
  });

  test('omit extensions and unknown capabilities that the gateway cannot carry', () => {
    expect(
      carried(
        '{"tasks":{},"roots":{},"vendor":1,"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"a":1}}}',
      ),
    ).toBe('{"roots":{},"extensions":{"io.modelcontextprotocol/ui":{"a":1}}}');
  });

  test('contain no capability for requests to the client if the client cannot receive requests', () => {
    expect(carried('{"elicitation":{},"experimental":{"a":1}}', false)).toBe('{"experimental":{"a":1}}');
  });
});
