import { describe, expect, test } from 'vitest';
import { bearerChallenge, parseChallenges, scopesOf } from './challenges.js';

const shown = (header: string) =>
  parseChallenges(header).map(({ scheme, params }) => [scheme, Object.fromEntries(params)]);

describe('WWW-Authenticate', () => {
  test.each([
    ['Bearer', [['bearer', {}]]],
    ['Bearer realm="a", error="invalid_token"', [['bearer', { realm: 'a', error: 'invalid_token' }]]],
    [
      'Basic realm="x", Bearer scope="a b", DPoP algs="ES256"',
      [
        ['basic', { realm: 'x' }],
        ['bearer', { scope: 'a b' }],
        ['dpop', { algs: 'ES256' }],
      ],
    ],
    [
      'Negotiate abc/def==, Bearer error=invalid_token',
      [
        ['negotiate', {}],
        ['bearer', { error: 'invalid_token' }],
      ],
    ],
    ['Bearer realm="a \\"quoted\\", comma", error="x"', [['bearer', { realm: 'a "quoted", comma', error: 'x' }]]],
    ['Bearer ERROR = "x" , Scope="s"', [['bearer', { error: 'x', scope: 's' }]]],
    ['Bearer error="first", error="second"', [['bearer', { error: 'first' }]]],
    ['Bearer realm="error=\\"insufficient_scope\\""', [['bearer', { realm: 'error="insufficient_scope"' }]]],
    [', ,Bearer', [['bearer', {}]]],
    ['error="x"', []],
    ['Bearer realm="open', [['bearer', {}]]],
    ['', []],
    ['"', []],
  ])('%s', (header, challenges) => {
    expect(shown(header)).toEqual(challenges);
  });

  test('at most 16 challenges are read, and a long hostile header takes linear time', () => {
    expect(parseChallenges(Array.from({ length: 100 }, () => 'Bearer').join(', '))).toHaveLength(16);
    for (const part of ['a', 'a=', 'a="', 'Bearer a="\\', '=', ', '])
      expect(parseChallenges(part.repeat(4_096 / part.length)).length).toBeLessThanOrEqual(16);
  });

  test('the Bearer challenge is found among others, and scopes are separated', () => {
    expect(bearerChallenge('Basic realm="x", Bearer error="e"')?.params.get('error')).toBe('e');
    expect(bearerChallenge('Basic realm="x"')).toBeUndefined();
    expect(scopesOf('a  b a "c" d\\')).toEqual(['a', 'b']);
    expect(scopesOf(undefined)).toEqual([]);
  });
});
