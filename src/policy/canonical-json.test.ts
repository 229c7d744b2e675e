import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { argumentsHash, canonicalText } from './canonical-json.js';

const fieldOf = (run: () => unknown): string | undefined => {
  try {
    run();
  } catch (error) {
    if (error instanceof HostError && error.code === 'invalid_arguments') return error.details.field;
    throw error;
  }
  return undefined;
};

/** The expected canonical text, made from a parsed value. Correct only if its numbers fit a double. */
function canonicalOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalOf).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonicalOf(member)}`).join(',')}}`;
}

const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);

describe('the hash', () => {
  test('AC-H4 the order of keys does not change the text', () => {
    expect(canonicalText('{"b":1,"a":2}')).toBe('{"a":2,"b":1}');
  });

  test('AC-H5 the order of keys does not change the hash', () => {
    expect(argumentsHash('{"x":1,"y":[1,2]}')).toBe(argumentsHash(' { "y" : [1, 2], "x" : 1.0 } '));
  });

  test('H-HSH-1 it is the SHA-256 of the canonical text, in lower-case hex', () => {
    const expected = createHash('sha256').update('{"a":"é"}').digest('hex');
    expect([argumentsHash('{"a":"\\u00e9"}'), argumentsHash(Buffer.from('{"a":"é"}'))]).toEqual([expected, expected]);
  });

  test('H-HSH-2 an empty object is not null, and the order of an array counts', () => {
    const texts = ['{}', 'null', '[]', '[1,2]', '[2,1]', '""', '0', 'false', '{"a":null}', '[null]', '"null"'];
    expect(new Set(texts.map(argumentsHash)).size).toBe(texts.length);
  });
});

test('arguments of more than 256 KiB have no hash, whatever they are made of', () => {
  const text = (length: number) => JSON.stringify({ a: 'x'.repeat(length - 8) });
  expect(argumentsHash(text(262_144))).toBe(argumentsHash(Buffer.from(text(262_144))));
  for (const large of [text(262_145), Buffer.from(text(262_145)), '!'.repeat(262_145)])
    expect(fieldOf(() => argumentsHash(large))).toBe('arguments');
});

describe('RFC 8785', () => {
  test('its example gives the printed text, except for a number that a double would round', () => {
    const text = `{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\"\\/",
      "literals": [null, true, false]
    }`;
    const rest = '1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}';
    // The first number has more digits than a double: it is kept, where the RFC would round it.
    expect(canonicalText(text)).toBe(`{"literals":[null,true,false],"numbers":[333333333.33333329,${rest}`);
  });

  test('keys are sorted by UTF-16 code unit', () => {
    const keys = ['\u20ac', '\r', '\ufb33', '1', '\u{1f600}', '\u0080', '\u00f6'];
    const text = `{${keys.map((key, i) => `${JSON.stringify(key)}:${i}`).join(',')}}`;
    const sorted = '{"\\r":1,"1":3,"\u0080":5,"\u00f6":6,"\u20ac":0,"\u{1f600}":4,"\ufb33":2}';
    expect(canonicalText(text)).toBe(sorted);
  });

  test('an escaped key is sorted by its decoded text', () => {
    expect(canonicalText('{"b":1,"\\u0061":2}')).toBe('{"a":2,"b":1}');
  });

  test.each([
    ['0', '0'],
    ['-0', '0'],
    ['-0.0', '0'],
    ['0e5', '0'],
    ['1.0', '1'],
    ['1e2', '100'],
    ['1.50', '1.5'],
    ['-1E-7', '-1e-7'],
    ['123456789012345', '123456789012345'],
    ['9007199254740991', '9007199254740991'],
    ['1e21', '1e+21'],
    ['5e-324', '5e-324'],
    ['0.1', '0.1'],
  ])('%s is written as %s', (text, canonical) => {
    expect(canonicalText(text)).toBe(canonical);
  });
});

describe('D-59 numbers that do not fit a double', () => {
  test.each([
    ['9007199254740992', '9007199254740993'],
    ['9223372036854775806', '9223372036854775807'],
    ['-9007199254740992', '-9007199254740993'],
    ['0.1', '0.1000000000000000055511151231257827'],
    ['1e400', '1e401'],
    ['0', '1e-400'],
    ['1152921504606846976', '1152921504606847000'],
    ['1', '1.00000000000000000000001'],
  ])('%s and %s stay different', (a, b) => {
    expect(argumentsHash(`{"id":${a}}`)).not.toBe(argumentsHash(`{"id":${b}}`));
  });

  test('an integer beyond 2^53 keeps all its digits', () => {
    expect(canonicalText('[12345678901234567890123]')).toBe('[12345678901234567890123]');
  });

  test('two texts give the same result only if they are the same number', () => {
    const digits = (max: number) => fc.string({ unit: fc.constantFrom(...'0123456789'), minLength: 1, maxLength: max });
    const number = fc
      .tuple(fc.constantFrom('', '-'), digits(22), fc.option(digits(8)), fc.option(fc.integer({ min: -30, max: 30 })))
      .map(([sign, whole, fraction, power]) => {
        const lead = whole.replace(/^0+(?=.)/, '');
        return `${sign}${lead}${fraction === null ? '' : `.${fraction}`}${power === null ? '' : `e${power}`}`;
      });
    /** Exact, in units of 10^-60. */
    const exact = (text: string): bigint => {
      const [mantissa = '', power = '0'] = text.split('e');
      const [whole = '', fraction = ''] = mantissa.split('.');
      const shift = BigInt(60 + Number(power) - fraction.length);
      const value = BigInt(whole.replace('-', '') + fraction) * 10n ** shift;
      return whole.startsWith('-') ? -value : value;
    };
    fc.assert(
      fc.property(number, (text) => exact(canonicalText(text)) === exact(text)),
      { numRuns: 20_000 },
    );
  }, 180_000);
});

describe('D-60 data without a canonical text', () => {
  test('64 levels pass, 65 do not', () => {
    expect(canonicalText(nested(64))).toBe(nested(64));
    expect(fieldOf(() => canonicalText(nested(65)))).toBe(`arguments${'[0]'.repeat(64)}`);
    expect(fieldOf(() => canonicalText('{"a":'.repeat(100_000)))).toMatch(/^arguments(\.a){64}$/);
  });

  test.each(['{"a":1,"a":1}', '{"b":{"a":1,"c":2,"\\u0061":3}}', '{"":1,"":2}'])('a key twice: %s', (text) => {
    expect(() => canonicalText(text)).toThrow('is a duplicate key');
  });

  test('bytes that are not UTF-8 are refused, because they would all give the same text', () => {
    expect(fieldOf(() => canonicalText(Buffer.from([0x22, 0xff, 0x22])))).toBe('arguments');
  });

  test('unpaired surrogates stay different, escaped or not', () => {
    const texts = ['"\ud800"', '"\ud801"', '"\ufffd"', '"\\udc00"'];
    expect(new Set(texts.map(argumentsHash)).size).toBe(4);
    expect(canonicalText('"\ud800"')).toBe(canonicalText('"\\uD800"'));
  });

  test('the path contains no character that controls a terminal', () => {
    expect(fieldOf(() => canonicalText('{"\\u001b[2J":x}'))).not.toMatch(/[\u0000-\u001f]/);
  });
});

test.each(['__proto__', 'constructor', 'toString', ''])('D-60 the key %o is a key like any other', (key) => {
  const text = `{"a":1,${JSON.stringify(key)}:{"x":2}}`;
  expect(canonicalText(text)).toContain(`${JSON.stringify(key)}:{"x":2}`);
  expect(canonicalOf(JSON.parse(text))).toBe(canonicalText(text));
});

describe('text against JSON.parse', () => {
  test('a text and its parsed value give the same result, for any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), fc.nat(3), (value, space) => {
        const text = JSON.stringify(value, null, space);
        expect(canonicalText(text)).toBe(canonicalOf(JSON.parse(text)));
        expect(canonicalText(Buffer.from(text))).toBe(canonicalText(text));
        expect(canonicalText(canonicalText(text))).toBe(canonicalText(text));
      }),
      { numRuns: 3_000 },
    );
  }, 180_000);

  test('a text is refused exactly if JSON.parse refuses it', () => {
    const pieces = [
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"',
      '\\',
      '\\u0041',
      'a',
      'true',
      'nul',
      '-',
      '0',
      '1',
      '.',
      'e',
      ' ',
      '\n',
      '\u0000',
    ];
    const parses = (read: () => unknown) => {
      try {
        read();
        return true;
      } catch {
        return false;
      }
    };
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 12 }), (parts) => {
        const text = parts.join('');
        const ours = parses(() => canonicalText(text));
        const theirs = parses(() => JSON.parse(text));
        if (ours !== theirs && !text.includes('":')) expect.fail(JSON.stringify(text));
        if (ours) expect(theirs).toBe(true);
      }),
      { numRuns: 30_000 },
    );
  }, 180_000);
});
