import { describe, expect, test } from 'vitest';
import { readMeta } from './relay.js';

const read = (text: string) => readMeta(Buffer.from(text));
const key = (name: string) => `"io.modelcontextprotocol/${name}"`;

describe('_meta', () => {
  test('that is missing has no members', () => {
    const nothing = { progressToken: undefined, logLevel: undefined, forwarded: undefined };
    expect(readMeta(undefined)).toEqual(nothing);
    expect(read('{}')).toEqual(nothing);
  });

  test('is forwarded without the envelope, numbers digit by digit', () => {
    const envelope = ['protocolVersion', 'clientInfo', 'clientCapabilities', 'serverInfo', 'subscriptionId'];
    const members = envelope.map((name) => `${key(name)}:{}`).join(',');
    expect(read(`{${members},"traceparent":"00-é", "v":1.0}`)?.forwarded).toBe('"traceparent":"00-é","v":1.0');
    expect(read(`{"io.modelcontextprotocol\\/protocolVersion":1,"v":1}`)?.forwarded).toBe('"v":1');
  });

  test.each([
    ['"p"', '"p"'],
    ['12345678901234567890', '12345678901234567890'],
    ['-1', '-1'],
    ['null', undefined],
    ['{}', undefined],
    ['true', undefined],
  ])('with progressToken %s has the token %s', (token, expected) => {
    expect(read(`{"progressToken":${token}}`)).toMatchObject({ progressToken: expected, forwarded: undefined });
  });

  test.each([
    ['"info"', 'info'],
    ['"loud"', undefined],
    ['7', undefined],
  ])('with logLevel %s requests the level %s', (level, expected) => {
    expect(read(`{${key('logLevel')}:${level}}`)).toMatchObject({ logLevel: expected, forwarded: undefined });
  });

  test.each(['[]', '7', 'null', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}'])('%s is refused', (text) => {
    expect(read(text)).toBeUndefined();
  });
});
