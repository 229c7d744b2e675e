import { expect, test } from 'vitest';
import { checkModernNotification, checkModernRequest } from './envelope.js';

// test/gateway/http-header-mismatch.test.ts compares thousands of headers with bodies.
const meta =
  '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}';
const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'x' };
const callerWith = (more: Readonly<Record<string, string>>) => ({
  principal: { id: 'tester', role: undefined, scopes: [] },
  endpoint: { kind: 'all' } as const,
  headers: more,
});
const pairs = (flat: readonly string[]): Record<string, string> =>
  flat.length === 0 ? {} : { [(flat[0] as string).toLowerCase()]: flat[1] as string, ...pairs(flat.slice(2)) };
const mirrored = [{ name: 'Count', path: ['a', 'count'] }];
const check = (params: string, more: readonly string[] = [], asked = mirrored) =>
  checkModernRequest('tools/call', Buffer.from(params), callerWith({ ...headers, ...pairs(more) }), {
    mirroredArguments: () => asked,
  });

test('the capabilities of the body are returned byte for byte', () => {
  const checked = check(`{${meta},"name":"x"}`);
  expect(checked.ok && checked.capabilities.raw.toString()).toBe('{"roots":{}}');
});

test.each([
  ['10', '10', true],
  ['1e1', '10', true],
  ['10', '1e1', true],
  ['42', '42.0', true],
  ['42.0', '42', true],
  ['42.5', '42.50', true],
  ['42', '42.5', false],
  ['-42', '42.0', false],
  ['42', '042', false],
  ['42', '+42', false],
  ['42', '0x2a', false],
  ['"42"', '42.0', false],
  ['9007199254740993', '9007199254740993', true],
  ['9007199254740993', '9007199254740993.0', true],
  ['9007199254740993', '9007199254740992', false],
  ['1e9007199254740993', '1e9007199254740992', false],
  [`1${'0'.repeat(1_000)}`, `1${'0'.repeat(1_000)}`, true],
  ['true', 'true', true],
  ['"10"', '10', true],
  ['{"b":1}', '{"b":1}', true],
  ['0', '-0', true],
])('E13 the argument %s in the header as %s: %s', (written, header, isOk) => {
  expect(check(`{${meta},"name":"x","arguments":{"a":{"count":${written}}}}`, ['mcp-param-count', header]).ok).toBe(
    isOk,
  );
});

test.each([
  ['metadata twice', `{${meta},${meta},"name":"x"}`, -32602],
  ['a name twice', `{${meta},"name":"x","name":"x"}`, -32020],
  ['a name twice, one in escapes', `{${meta},"name":"x","n\\u0061me":"x"}`, -32020],
  ['params that are an array', '[]', -32602],
])('%s is refused', (_name, params, code) => {
  expect(check(params)).toMatchObject({ ok: false, failure: { code, httpStatus: 400 } });
});

test.each([
  ['twice', '{"a":{"count":1,"count":2}}'],
  ['twice, once in escapes', '{"a":{"count":1,"c\\u006funt":2}}'],
  ['below a member that is given twice', '{"a":{"count":1},"a":{}}'],
  ['among too many', `{"a":{"count":1,${Array.from({ length: 1_000 }, (_, i) => `"k${i}":0`).join()}}}`],
])('an argument that is given %s is refused with any header and without one', (_how, args) => {
  for (const more of [[], ['mcp-param-count', '1'], ['mcp-param-count', '2']])
    expect(check(`{${meta},"name":"x","arguments":${args}}`, more)).toMatchObject({
      ok: false,
      failure: { code: -32020 },
    });
});

test('E12 Mcp-Method is never decoded from base64', () => {
  const encoded = `=?base64?${Buffer.from('tools/list').toString('base64')}?=`;
  const checked = (mcpMethod: string) =>
    checkModernRequest('tools/list', Buffer.from(`{${meta}}`), callerWith({ ...headers, 'mcp-method': mcpMethod }), {
      mirroredArguments: () => undefined,
    });
  expect(checked('tools/list').ok).toBe(true);
  expect(checked(encoded)).toMatchObject({ ok: false, failure: { code: -32020, httpStatus: 400 } });
  const wrong = { ...headers, 'mcp-method': encoded };
  expect(checkModernNotification('tools/list', undefined, wrong)).toMatchObject({ code: -32020 });
});

test('an argument whose name is not ASCII is compared with its header', () => {
  const asked = [{ name: 'Size', path: ['größe'] }];
  const params = `{${meta},"name":"x","arguments":{"größe":"xl"}}`;
  expect([check(params, ['mcp-param-size', 'xl'], asked).ok, check(params, [], asked).ok]).toEqual([true, false]);
});
