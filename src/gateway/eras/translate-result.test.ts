import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Era } from '../../wire/channel.js';
import { METHODS } from '../../wire/methods.js';
import { isFailure } from '../exchange.js';
import { eraOf } from './eras.js';

const translateResult = (
  bytes: Buffer,
  { from, to, method, mayBePublic }: { from: Era; to: Era; method: string; serverInfo: string; mayBePublic: boolean },
) => {
  const isCacheable = METHODS.get(method)?.isCacheable ?? false;
  return eraOf(to).translateResult(bytes, { from, isCacheable, serverInfo, mayBePublic });
};
const serverInfo = '{"name":"s","v":12345678901234567890}';
const said = (text: string, from: Era, to: Era, method = 'tools/call', mayBePublic = true) => {
  const worded = translateResult(Buffer.from(text), { from, to, method, serverInfo, mayBePublic });
  return isFailure(worded) ? worded : worded.map((part) => Buffer.from(part).toString()).join('');
};
const meta = `"_meta":{"io.modelcontextprotocol/serverInfo":${serverInfo}}`;

describe('a result of the same era', () => {
  test.each(['legacy', 'modern'] as const)('is not changed in the %s era', (era) => {
    const bytes = Buffer.from('{ "resultType":"complete","ttlMs":1,"a":1.0}');
    const wording = { from: era, to: era, method: 'resources/read', serverInfo, mayBePublic: true };
    expect(translateResult(bytes, wording)).toEqual([bytes]);
  });

  test.each([
    [
      'public',
      '{"resultType":"complete","ttlMs":9,"cacheScope":"public","n":1.0}',
      '"ttlMs":9,"cacheScope":"private","n":1.0}',
    ],
    ['written with escapes', '{"resultType":"complete","cacheScop\\u0065":"public"}', '"cacheScop\\u0065":"private"}'],
    ['absent', '{"resultType":"complete","ttlMs":9}', '{"cacheScope":"private","resultType":"complete","ttlMs":9}'],
    ['absent, as is resultType,', '{"ttlMs":9}', '{"cacheScope":"private","ttlMs":9}'],
  ])('E5 is private if it is a resource whose scope is %s and callers have different rights', (_how, text, end) => {
    const worded = String(said(text, 'modern', 'modern', 'resources/read', false));
    expect(worded.endsWith(end), worded).toBe(true);
    expect(said(text, 'modern', 'modern', 'resources/read', true)).toBe(text);
    expect(said(text, 'modern', 'modern', 'tools/call', false)).toBe(text);
  });

  test('E5 is refused if it is a resource with two scopes; input_required is not changed', () => {
    const twice = '{"cacheScope":"private","cacheScope":"public"}';
    expect(said(twice, 'modern', 'modern', 'resources/read', false)).toMatchObject({ code: -32603 });
    const more = '{"resultType":"input_required","inputRequests":{}}';
    expect(said(more, 'modern', 'modern', 'resources/read', false)).toBe(more);
  });
});

describe('a legacy result for a modern client', () => {
  test.each([
    ['is marked as complete', '{"a":1.0}', `{"resultType":"complete",${meta},"a":1.0}`],
    ['is marked when it is empty', '{}', `{"resultType":"complete",${meta}}`],
    ['is marked when it is empty but contains white space', '{ \n }', `{"resultType":"complete",${meta} \n }`],
    [
      'is marked however much white space it contains',
      `{${' '.repeat(99)}}`,
      `{"resultType":"complete",${meta}${' '.repeat(99)}}`,
    ],
    [
      'keeps its own _meta',
      '{"_meta":{"x":1.0},"a":2}',
      `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":${serverInfo},"x":1.0},"a":2}`,
    ],
    ['keeps a _meta that is no object', '{"_meta":7}', '{"resultType":"complete","_meta":7}'],
    ['has its own mark replaced', '{"resultType":"task","a":1}', `{${meta},"resultType":"complete","a":1}`],
    ['has a mark with escapes replaced', '{"resultTyp\\u0065":"task"}', `{${meta},"resultTyp\\u0065":"complete"}`],
    ['may contain _meta in a text', '{"t":"\\"_meta\\""}', `{"resultType":"complete",${meta},"t":"\\"_meta\\""}`],
  ])('%s', (_title, text, expected) => {
    expect(said(text, 'legacy', 'modern')).toBe(expected);
  });

  test('of resources/read is marked as not cacheable', () => {
    const hints = '"resultType":"complete","ttlMs":0,"cacheScope":"private"';
    expect(said('{"contents":[]}', 'legacy', 'modern', 'resources/read')).toBe(`{${hints},${meta},"contents":[]}`);
    const kept = JSON.parse(String(said('{"ttlMs":9,"contents":[]}', 'legacy', 'modern', 'resources/read')));
    expect(kept).toMatchObject({ ttlMs: 0, cacheScope: 'private', resultType: 'complete', contents: [] });
  });

  test('keeps all other members, whatever they contain', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (value) => {
        const { resultType: _1, _meta: _2, ...rest } = JSON.parse(JSON.stringify(value));
        const after = JSON.parse(String(said(JSON.stringify(rest), 'legacy', 'modern')));
        expect(after).toEqual({ ...rest, resultType: 'complete', _meta: expect.anything() });
      }),
    );
  });
});

describe('a modern result for a legacy client', () => {
  test.each([
    [
      'loses the members that describe caching',
      '{"resultType":"complete","ttlMs":1,"cacheScope":"public","n":1.0}',
      '{"n":1.0}',
    ],
    ['is not changed without such members', '{"n": 1.0}', '{"n": 1.0}'],
    ['loses such members also when they are written with escapes', '{"n":1,"ttl\\u004ds":1}', '{"n":1}'],
    [
      'keeps such members where they have another meaning',
      '{"structuredContent":{"ttlMs":1}}',
      '{"structuredContent":{"ttlMs":1}}',
    ],
  ])('%s', (_title, text, expected) => {
    expect(said(text, 'modern', 'legacy')).toBe(expected);
  });

  test('of an unknown kind is an error', () => {
    expect(said('{"resultType":"task","taskId":"1"}', 'modern', 'legacy')).toMatchObject({ code: -32603 });
    expect(said('{"resultType":"input_required"}', 'modern', 'legacy')).toMatchObject({ code: -32603 });
  });
});
