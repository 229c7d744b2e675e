import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import {
  olderCallRequest,
  olderErrorReply,
  olderManifestReply,
  olderManifestRequest,
  olderResultReply,
  readOlderReply,
  readOlderRequest,
} from './older-messages.js';

const bytes = (value: unknown) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));

describe('a request of an older worker', () => {
  test('asks for the manifest', () => {
    expect(olderManifestRequest().toString()).toBe('{"op":"manifest"}');
    expect(readOlderRequest(olderManifestRequest())).toEqual({ op: 'manifest' });
  });

  test('has its arguments as text, digit for digit', () => {
    const body = olderCallRequest('nova_click', Buffer.from('{"mark":90071992547409931.0}'));
    expect(JSON.parse(body.toString())).toEqual({
      op: 'call',
      tool: 'nova_click',
      arguments: '{"mark":90071992547409931.0}',
    });
    expect(readOlderRequest(body)).toEqual({
      op: 'call',
      tool: 'nova_click',
      args: bytes('{"mark":90071992547409931.0}'),
    });
  });

  test('without arguments has none', () => {
    expect(readOlderRequest(bytes({ op: 'call', tool: 't', arguments: ' ' }))).toMatchObject({ args: bytes('{}') });
  });

  test.each([
    ['no object', '[]'],
    ['an op that nobody knows', { op: 'list' }],
    ['no tool', { op: 'call', arguments: '{}' }],
    ['a tool with no end', { op: 'call', tool: 'x'.repeat(257), arguments: '{}' }],
    ['arguments that are a list', { op: 'call', tool: 't', arguments: '[1]' }],
    ['arguments that close our bracket', { op: 'call', tool: 't', arguments: '{},"a":{}' }],
    ['arguments that are no text', { op: 'call', tool: 't', arguments: {} }],
    ['a tool twice', '{"op":"call","tool":"a","tool":"b","arguments":"{}"}'],
  ])('with %s is refused', (_what, body) => {
    expect(() => readOlderRequest(bytes(body))).toThrow(/^bad mcp request: /);
  });
});

describe('a reply of an older host', () => {
  test('lists function schemas', () => {
    const raw = bytes('{"name":"click","description":"Clicks.","inputSchema":{"type":"object","x":1.0}}');
    const body = olderManifestReply([
      { name: 'nova_click', raw },
      { name: 'bare', raw: bytes('{"name":"bare"}') },
    ]);
    expect(JSON.parse(body.toString()).manifest[0]).toEqual({
      type: 'function',
      function: { name: 'nova_click', description: 'Clicks.', parameters: { type: 'object', x: 1 } },
    });
    const reply = readOlderReply(body);
    if (reply.kind !== 'manifest') throw new Error('not a manifest');
    expect(reply.manifest.tools.map(({ server, name, raw: text }) => [server, name, text.toString()])).toEqual([
      ['host', 'nova_click', '{"name":"nova_click","description":"Clicks.","inputSchema":{"type":"object","x":1.0}}'],
      ['host', 'bare', '{"name":"bare","description":"","inputSchema":{"type":"object"}}'],
    ]);
  });

  test('has a revision that is the same for the same tools', () => {
    const revisionOf = (name: string) => {
      const reply = readOlderReply(olderManifestReply([{ name, raw: bytes('{}') }]));
      return reply.kind === 'manifest' && reply.manifest.revision;
    };
    expect(revisionOf('a')).toBe(revisionOf('a'));
    expect(revisionOf('a')).not.toBe(revisionOf('b'));
  });

  test('may list bare schemas, or nothing', () => {
    expect(readOlderReply(bytes({ manifest: [{ name: 'a', parameters: {} }] }))).toMatchObject({
      manifest: { tools: [{ name: 'a' }] },
    });
    expect(readOlderReply(bytes({ manifest: [] }))).toMatchObject({ kind: 'manifest', manifest: { tools: [] } });
  });

  test.each([
    [
      'texts, as text',
      {
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
      true,
      'a\nb',
    ],
    ['a mistake of the tool', { content: [{ type: 'text', text: 'no' }], isError: true }, false, 'no'],
    ['nothing', { content: [] }, true, ''],
    [
      'anything else, as JSON',
      { content: [{ type: 'image', data: 'AA' }] },
      true,
      '{"content":[{"type":"image","data":"AA"}]}',
    ],
  ])('carries %s', (_what, result, success, text) => {
    const body = olderResultReply(bytes(result));
    expect(JSON.parse(body.toString())).toEqual({ result: { success, result: text } });
    const reply = readOlderReply(body);
    expect(reply.kind === 'result' && JSON.parse(reply.bytes.toString())).toEqual({
      content: [{ type: 'text', text }],
      isError: !success,
    });
  });

  test('carries the sentence of an error, as one line', () => {
    const body = olderErrorReply(new HostError('denied', "tool 'x' is not allowed\n for role researcher"));
    const reply = readOlderReply(body);
    expect(reply.kind === 'error' && [reply.error.code, reply.error.retryable]).toEqual(['tool_error', false]);
    expect(reply.kind === 'error' && reply.error.message).toMatch(/not allowed.*researcher/);
  });

  test.each([
    ['', 'it is not JSON'],
    ['{"manifest":', 'it is not JSON'],
    ['{}', 'missing result'],
    ['{"manifest":{}}', 'missing result'],
    ['{"manifest":[1]}', 'its manifest has an entry without a name'],
    ['{"result":{"success":true}}', 'its result has no text'],
  ])('that is %s is an error, never an empty answer', (body, what) => {
    expect(() => readOlderReply(bytes(body))).toThrow(`bad mcp reply: ${what}`);
  });
});
