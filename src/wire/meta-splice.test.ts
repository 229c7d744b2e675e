import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { spliceMeta } from './meta-splice.js';

const splice = (params: string | undefined, ...edits: [string, string | undefined][]) =>
  spliceMeta(params === undefined ? undefined : Buffer.from(params), edits).toString();

describe('a member is set', () => {
  test.each([
    [undefined, '{"_meta":{"a":1}}'],
    ['{}', '{"_meta":{"a":1}}'],
    [' { } ', ' {"_meta":{"a":1} } '],
    ['{"name":"x"}', '{"_meta":{"a":1},"name":"x"}'],
    ['{"name":"x","_meta":{}}', '{"name":"x","_meta":{"a":1}}'],
    ['{"_meta":{"b":2,"a":0}}', '{"_meta":{"a":1,"b":2}}'],
    ['{"_meta":{"a":0},"n":18446744073709551615}', '{"_meta":{"a":1},"n":18446744073709551615}'],
    ['{"_meta":{"\\u0061":0}}', '{"_meta":{"a":1}}'],
    ['{"x":{"_meta":{"a":0}}}', '{"_meta":{"a":1},"x":{"_meta":{"a":0}}}'],
  ])('%s → %s', (before, after) => {
    expect(splice(before, ['a', '1'])).toBe(after);
  });

  test('or taken out', () => {
    expect(splice('{"_meta":{"a":0,"b":2}}', ['a', undefined])).toBe('{"_meta":{"b":2}}');
    expect(splice('{"_meta":{"a":0}}', ['a', undefined])).toBe('{"_meta":{}}');
  });

  test('everything else parses to what it was', () => {
    const params = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }));
    fc.assert(
      fc.property(params, (value) => {
        const { _meta, ...rest } = value as Record<string, unknown>;
        const before = JSON.stringify({ ...rest, _meta: { old: 1, a: [{}] } });
        const after = JSON.parse(splice(before, ['a', '1'])) as Record<string, unknown>;
        expect(after).toEqual({ ...JSON.parse(before), _meta: { old: 1, a: 1 } });
      }),
    );
  });
});

describe('what cannot be spliced is refused, not guessed', () => {
  test.each(['[]', '"x"', '{"_meta":1}', '{"_meta":null}', '{"_meta":{},"_meta":{}}', '{"a":}', '{} x'])(
    '%s',
    (params) => {
      expect(() => splice(params, ['a', '1'])).toThrow(HostError);
    },
  );
});
