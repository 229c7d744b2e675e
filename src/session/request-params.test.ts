import { describe, expect, test } from 'vitest';
import { spliceMeta } from '../wire/json-edit.js';
import { modernEra } from './eras/modern/modern-era.js';
import { META } from './eras/modern/protocol.js';
import { callParams, metaEdits, metaMembers, type RequestMeta, withMembers } from './request-params.js';

const client = { name: 'hostler', version: '1', capabilities: { sampling: {} } };
const texts = modernEra.requestMeta(client) as RequestMeta;
const meta = '"traceparent":"00-1",\r\n"n":18446744073709551615';
const parse = (members: string) => JSON.parse(`{${members}}`) as Record<string, unknown>;

describe('the members of _meta', () => {
  test('are only those of the era and a token when nothing is relayed', () => {
    expect(metaMembers(undefined, undefined, undefined)).toBe('');
    expect(metaMembers(undefined, 7, undefined)).toBe('"progressToken":7');
    expect(metaMembers(texts, undefined, undefined)).toBe(texts.members());
    expect(metaMembers(texts, 7, undefined)).toBe(`${texts.members()},"progressToken":7`);
  });

  test('of a relayed request are forwarded, digit by digit and on one line', () => {
    expect(metaMembers(undefined, 7, { meta })).toBe(
      '"traceparent":"00-1",  "n":18446744073709551615,"progressToken":7',
    );
    expect(metaMembers(undefined, undefined, { capabilities: '{}' })).toBe('');
  });

  test('declare only the capabilities of the client to a modern server', () => {
    const told = parse(metaMembers(texts, undefined, { capabilities: '{"elicitation":{}}' }));
    expect(told).toEqual({ ...parse(texts.members()), [META.clientCapabilities]: { elicitation: {} } });
  });

  test('are the same when they are spliced into params', () => {
    const relay = { meta, capabilities: '{"elicitation":{}}' };
    for (const era of [texts, undefined]) {
      const spliced = spliceMeta(
        Buffer.from('{"name":"x","_meta":{"n":1,"own":2}}'),
        metaEdits(era, 7, relay),
      ).toString();
      expect(spliced).toContain('"n":18446744073709551615');
      expect(spliced).not.toMatch(/[\r\n]/);
      expect(JSON.parse(spliced)).toEqual({ name: 'x', _meta: { ...parse(metaMembers(era, 7, relay)), own: 2 } });
    }
  });
});

describe('further members of params', () => {
  test.each([
    [undefined, '{"a":1,  "b":2}'],
    ['{}', '{"a":1,  "b":2}'],
    [' { } ', ' {"a":1,  "b":2 } '],
    ['{"c":"ü"}', '{"a":1,  "b":2,"c":"ü"}'],
  ])('are put before %j', (params, text) => {
    expect(String(withMembers(params, '"a":1,\r\n"b":2'))).toBe(text);
    expect(withMembers(params, undefined)).toBe(params);
  });

  test('are next to the arguments of a call, which may be text, bytes or absent', () => {
    const members = '"requestState":"s"';
    const whole = '{"_meta":{"m":1},"name":"x","requestState":"s","arguments":{"é":1}}';
    expect(callParams(undefined, 'x', '{"é":1}', undefined, { meta: '"m":1', members })).toBe(whole);
    expect(String(callParams(undefined, 'x', Buffer.from('{"é":1}'), undefined, { meta: '"m":1', members }))).toBe(
      whole,
    );
    expect(callParams(undefined, 'x', undefined, undefined, { members })).toBe('{"name":"x","requestState":"s"}');
  });
});
