import { describe, expect, test } from 'vitest';
import { legacyEra, modernEra } from '../../../test/fakes/eras.js';
import { type EraRules, type OutboundFrame, requestFrame } from '../../wire/channel.js';
import { checkFacts, configuredHeaders, isSessionId, RequestHeaders } from './headers.js';

describe('configured headers', () => {
  test.each([
    ['a name that is no token', { 'bad name': 'x' }, 'headers.bad name'],
    ['an empty name', { '': 'x' }, 'headers.'],
    ['a line break in the value', { 'X-A': 'a\r\nX-B: b' }, 'headers.X-A'],
    ['a NUL in the value', { 'X-A': 'a\0' }, 'headers.X-A'],
    ['a character beyond Latin-1', { 'X-A': '日' }, 'headers.X-A'],
    ['a header for the length', { 'Content-Length': '1' }, 'headers.Content-Length'],
    ['a header for the host', { Host: 'elsewhere' }, 'headers.Host'],
    ['a header for the session', { 'MCP-Session-Id': 'x' }, 'headers.MCP-Session-Id'],
  ])('%s is refused, naming the field and not the value', (_name, headers, field) => {
    expect(() => configuredHeaders('fake', headers as Record<string, string>)).toThrow(
      expect.objectContaining({ code: 'invalid_spec', details: { server: 'fake', field } }),
    );
  });

  test('all other headers are sent unchanged', () => {
    expect(configuredHeaders('fake', { Authorization: 'Bearer x', 'User-Agent': 'me' })).toEqual([
      'authorization',
      'Bearer x',
      'user-agent',
      'me',
    ]);
  });
});

test('a session id is visible ASCII of at most 1 KiB', () => {
  expect(['a', '~'.repeat(1024)].every(isSessionId)).toBe(true);
  expect(['', ' a', 'a b', 'ü', 'a\n', 'x'.repeat(1025)].some(isSessionId)).toBe(false);
});

test('a parameter name that HTTP does not allow is refused', () => {
  expect(checkFacts('fake', { params: [['Region', 'x']] })).toBeUndefined();
  expect(checkFacts('fake', { params: [['Re\r\ngion', 'x']] })).toMatchObject({ code: 'invalid_request' });
});

const frame = (method: string, opens?: EraRules): OutboundFrame =>
  requestFrame(1, method, undefined, opens && { opens });
const value = (list: string[], name: string) => (list.includes(name) ? list[list.indexOf(name) + 1] : undefined);

test('the version and method headers depend on the era and the negotiated version', () => {
  const headers = new RequestHeaders([]);
  expect(value(headers.post(frame('server/discover', modernEra)), 'mcp-protocol-version')).toBe('2026-07-28');
  expect(value(headers.post(frame('initialize', legacyEra)), 'mcp-protocol-version')).toBeUndefined();
  expect(value(headers.post(frame('tools/list')), 'mcp-protocol-version')).toBeUndefined();

  headers.adopt({ era: legacyEra, version: '2025-06-18' });
  headers.setSession('s');
  const legacy = headers.post(frame('tools/list'));
  expect([value(legacy, 'mcp-protocol-version'), value(legacy, 'mcp-session-id')]).toEqual(['2025-06-18', 's']);
  expect(value(legacy, 'mcp-method')).toBeUndefined();
  expect(value(headers.post(frame('initialize', legacyEra)), 'mcp-session-id')).toBeUndefined();
  expect(value(headers.stream('9'), 'last-event-id')).toBe('9');
  expect(value(headers.end(), 'mcp-session-id')).toBe('s');

  headers.adopt({ era: modernEra, version: '2027-01-01' });
  const modern = headers.post(frame('tools/list'));
  expect([value(modern, 'mcp-protocol-version'), value(modern, 'mcp-method')]).toEqual(['2027-01-01', 'tools/list']);
  expect(value(modern, 'mcp-session-id')).toBeUndefined();
});

test('a version invented by the server cannot break a header', () => {
  const headers = new RequestHeaders([]);
  headers.adopt({ era: legacyEra, version: '1\r\nX-Evil: 1' });
  expect(headers.post(frame('tools/list')).join('')).not.toContain('\r');
});
