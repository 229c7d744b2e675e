import { describe, expect, test } from 'vitest';
import { fakeClient } from '../../../test/fakes/fake-exchange.js';
import { type FakeServer, FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { Views } from '../views/views.js';
import { capabilitiesOf, instructionsOf } from './capabilities.js';

const viewOf = (servers: Record<string, FakeServer>, path = '/mcp') => {
  const { endpoint, principal } = fakeClient({ path });
  return new Views(new FakeUpstreams(servers)).of(endpoint, principal);
};

describe('capabilities', () => {
  test.each([
    ['the declared capabilities', { a: { capabilities: '{"logging":{}}' } }, '/mcp'],
    ['having none', {}, '/mcp'],
    ['a group of one that was never seen', { a: { capabilities: null } }, '/mcp/@all'],
    ['one server that was never seen', { a: { capabilities: null } }, '/mcp/a'],
  ])(
    'W5 of several servers, or of a server never seen, are all that the gateway can relay: %s',
    (_what, servers, path) => {
      expect(JSON.parse(capabilitiesOf(viewOf(servers, path)))).toEqual({
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
        completions: {},
        logging: {},
      });
    },
  );

  test('of one server are forwarded unchanged if a member is invalid, and replaced if they are not an object', () => {
    expect(capabilitiesOf(viewOf({ a: { capabilities: '{"tools":7,"x":1.0}' } }, '/mcp/a'))).toBe(
      '{"tools":7,"x":1.0}',
    );
    expect(capabilitiesOf(viewOf({ a: { capabilities: '[]' } }, '/mcp/a'))).toBe('{"tools":{"listChanged":true}}');
  });
});

describe('instructions', () => {
  test('of several servers are shortened, each and in total', () => {
    const long = Object.fromEntries(
      Array.from({ length: 40 }, (_, i) => [`s${i}`, { tools: [], instructions: `${i} ${'x'.repeat(1_000)}` }]),
    );
    const text = instructionsOf(viewOf(long)) ?? '';
    expect(text.length).toBeLessThanOrEqual(8 * 1024 + 3);
    expect(text).toContain(`s0: 0 ${'x'.repeat(498)}…\n`);
    expect(text.endsWith('\n\n…')).toBe(true);
  });

  test('of one server are complete; without servers there are none', () => {
    const instructions = 'x'.repeat(20_000);
    expect(instructionsOf(viewOf({ a: { instructions } }, '/mcp/a'))).toBe(instructions);
    expect(instructionsOf(viewOf({}))).toBeUndefined();
  });

  test('of several servers do not name a disabled server or one that was never seen', () => {
    const servers: Record<string, FakeServer> = {
      off: { tools: ['t'], state: 'disabled' },
      unseen: { capabilities: null },
      here: { tools: ['t'] },
    };
    expect(instructionsOf(viewOf(servers))?.split('\n\n').slice(1)).toEqual(['here']);
    expect(instructionsOf(viewOf({ unseen: { capabilities: null } }))).toBeUndefined();
  });

  test('are never cut within a character', () => {
    const text = instructionsOf(viewOf({ a: { instructions: `${'x'.repeat(499)}😀` } })) ?? '';
    expect(text.endsWith('x…')).toBe(true);
  });
});
