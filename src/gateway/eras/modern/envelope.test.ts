import { describe, expect, test } from 'vitest';
import { LEGACY_VERSIONS } from '../../../session/eras/legacy/revisions.js';
import { MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import { memberBytes } from '../../../wire/json-members.js';
import { readInitialize } from '../legacy/initialize.js';
import { claimsModern, modernEnvelope, readEnvelope } from './envelope.js';

const version = '"io.modelcontextprotocol/protocolVersion":"2026-07-28"';
const capabilities = '"io.modelcontextprotocol/clientCapabilities":{}';
const bytes = (text: string) => Buffer.from(text);
const withMeta = (...members: string[]) => bytes(`{"name":"x","_meta":{${members.join(',')}}}`);

describe('whether a request is modern', () => {
  test.each([
    ['no params', undefined, false],
    ['no _meta', bytes('{"name":"x"}'), false],
    ['only a progress token', withMeta('"progressToken":1'), false],
    ['a version', withMeta(version), true],
    ['only capabilities', withMeta(capabilities), true],
    ['a version among the arguments', bytes(`{"arguments":{"_meta":{${version}}}}`), false],
    ['params that are a list', bytes('[]'), false],
    ['metadata in escapes', bytes(`{"_met\\u0061":{${version}}}`), true],
    ['a slash in escapes', withMeta('"io.modelcontextprotocol\\/protocolVersion":"2026-07-28"'), true],
    ['a version in escapes', withMeta('"io.modelcontextprotocol/protocol\\u0056ersion":"2026-07-28"'), true],
  ])('%s', (_what, params, modern) => {
    expect(claimsModern(params)).toBe(modern);
    expect(modernEnvelope(params) !== undefined).toBe(modern);
  });
});

describe('the envelope of a modern request', () => {
  test('is read with version and capabilities', () => {
    const params = withMeta(
      version,
      '"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"roots":{},"x":9007199254740993}',
      '"io.modelcontextprotocol/clientInfo":{"name":"n","version":"1"}',
      '"io.modelcontextprotocol/logLevel":"warning"',
    );
    expect(modernEnvelope(params)).toMatchObject({
      version: '2026-07-28',
      capabilities: {
        raw: bytes('{"elicitation":{"form":{},"url":{}},"roots":{},"x":9007199254740993}'),
        elicitation: true,
        elicitationUrl: true,
        sampling: false,
        roots: true,
      },
    });
  });

  test.each([
    ['no metadata', undefined],
    ['metadata that are a list', bytes('{"_meta":[]}')],
    ['no version', withMeta(capabilities)],
    ['a version that is a number', withMeta('"io.modelcontextprotocol/protocolVersion":2026', capabilities)],
    ['the version twice', withMeta(version, version, capabilities)],
    ['no capabilities', withMeta(version)],
    ['capabilities that are a list', withMeta(version, '"io.modelcontextprotocol/clientCapabilities":[]')],
    [
      'capabilities beyond the bound',
      withMeta(version, `"io.modelcontextprotocol/clientCapabilities":{"x":"${'y'.repeat(65_536)}"}`),
    ],
    ['client info that is a text', withMeta(version, capabilities, '"io.modelcontextprotocol/clientInfo":"me"')],
    ['an unknown log level', withMeta(version, capabilities, '"io.modelcontextprotocol/logLevel":"loud"')],
  ])('with %s is refused with -32602', (_what, params) => {
    expect(readEnvelope(params && memberBytes(params, '_meta'))).toMatchObject({ code: -32602, httpStatus: 400 });
  });

  test('with another version is refused; the error names the supported versions and the first 64 characters of the requested one', () => {
    const params = withMeta(`"io.modelcontextprotocol/protocolVersion":"${'9'.repeat(1_000)}"`, capabilities);
    expect(modernEnvelope(params)).toEqual({
      code: -32022,
      message: 'this protocol version is not supported; use one of data.supported',
      data: JSON.stringify({ supported: [MODERN_VERSION, ...LEGACY_VERSIONS], requested: '9'.repeat(64) }),
      httpStatus: 400,
    });
  });
});

describe('initialize', () => {
  test.each([
    ['2025-11-25', '2025-11-25'],
    ['2025-03-26', '2025-03-26'],
    ['2024-11-05', '2024-11-05'],
    ['2026-07-28', '2025-11-25'],
    ['1999-01-01', '2025-11-25'],
  ])('a client that requests version %s gets %s', (asked, spoken) => {
    const read = readInitialize(bytes(`{"protocolVersion":"${asked}","capabilities":{"sampling":{}}}`));
    expect(read).toMatchObject({ version: spoken, capabilities: { sampling: true, elicitation: false } });
  });

  test.each([undefined, '[]', '{}', '{"protocolVersion":1}', '{"protocolVersion":"2025-11-25","capabilities":7}'])(
    'params %s are refused with -32602',
    (params) => {
      expect(readInitialize(params === undefined ? undefined : bytes(params))).toMatchObject({ code: -32602 });
    },
  );

  test.each([
    ['small', '{"sampling":{}}'],
    ['large', `{"sampling":{"text":"${'x'.repeat(2_000)}"}}`],
  ])('W18 a session stores the %s capabilities of its client, but no other bytes of the message', (_, capabilities) => {
    const params = bytes(`{"protocolVersion":"2025-11-25","capabilities":${capabilities}}`);
    const read = readInitialize(params) as { capabilities: { raw: Buffer } };
    const kept = read.capabilities.raw;
    expect([kept.toString(), kept.buffer.byteLength]).toEqual([capabilities, capabilities.length]);
  });

  test('W18 sessions whose clients declare the same share one copy', () => {
    const params = bytes('{"protocolVersion":"2025-11-25","capabilities":{"roots":{}}}');
    const [first, second] = [readInitialize(params), readInitialize(Buffer.from(params))] as { capabilities: object }[];
    expect(first?.capabilities).toBe(second?.capabilities);
  });

  test('omitted capabilities count as no capabilities', () => {
    expect(readInitialize(bytes('{"protocolVersion":"2025-06-18"}'))).toMatchObject({
      capabilities: { raw: bytes('{}'), roots: false },
    });
  });
});
