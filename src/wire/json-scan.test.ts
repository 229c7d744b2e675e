import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { eachElement, eachMember, scanFacts, skipSpace, skipValue } from './json-scan.js';

function scannerAccepts(text: string): boolean {
  const bytes = Buffer.from(text);
  const after = skipValue(bytes, 0, bytes.length, 0);
  return after >= 0 && skipSpace(bytes, after, bytes.length) === bytes.length;
}

function parserAccepts(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

describe('the scanner accepts exactly what JSON.parse accepts', () => {
  test.each([
    ...['0', '-0', '1.5', '-1.5e+10', '1E5', '01', '1.', '.5', '-', '+1', '1e', '1e+', '0x1', 'NaN', 'Infinity'],
    ...['true', 'false', 'null', 'tru', 'nulll', 'True', 'undefined'],
    ...['""', '"a"', '"\\n"', '"\\u00e9"', '"\\u00g9"', '"\\x41"', '"\\"', '"a', '"\u0001"', '"\t"', '"\u2028"'],
    ...['{}', '[]', '{ }', '[ ]', '{"a":1}', '{"a":1,}', '{,}', '{"a"}', '{"a":}', '{a:1}', "{'a':1}", '{"a":1 "b":2}'],
    ...['[1,2]', '[1,]', '[,1]', '[1 2]', '[', ']', '{', '}', '[}', '{]', '[[]]', '[{}]', '{"a":[{"b":[]}]}', ' [1] '],
    ...['', ' ', '1 2', '{}{}', '[1]x', '\ufeff1', '"\ud800"', '"\\ud800"', '1\u00a0', '\f1'],
  ])('%j', (text) => {
    expect(scannerAccepts(text)).toBe(parserAccepts(text));
  });

  test('for values made at random', () => {
    fc.assert(fc.property(fc.json({ maxDepth: 6 }), (text) => scannerAccepts(text)));
  });

  test('for text that differs from a value by one edit', () => {
    const edit = fc.record({ at: fc.nat(), insert: fc.constantFrom(...'{}[]",:\\0-e.tfn u1\u00e9'.split('')) });
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), edit, fc.boolean(), (text, { at, insert }, replace) => {
        const cut = at % (text.length + 1);
        const edited = text.slice(0, cut) + insert + text.slice(cut + (replace ? 1 : 0));
        expect(scannerAccepts(edited)).toBe(parserAccepts(edited));
      }),
      { numRuns: 5_000 },
    );
  }, 180_000);
});

describe('nesting', () => {
  test('128 levels pass and 129 are refused as too deep', () => {
    expect(scannerAccepts('['.repeat(128) + ']'.repeat(128))).toBe(true);
    scanFacts.tooDeep = false;
    expect(scannerAccepts('['.repeat(129) + ']'.repeat(129))).toBe(false);
    expect(scanFacts.tooDeep).toBe(true);
  });

  test('100,000 open brackets neither overflow the stack nor are all read', () => {
    expect(scannerAccepts('['.repeat(100_000))).toBe(false);
    expect(scannerAccepts('{"a":'.repeat(100_000))).toBe(false);
  });
});

describe('walking', () => {
  test('members are found with their bounds, whatever the white space', () => {
    const bytes = Buffer.from(' { "a" : 1 , "b\\"c":[1,{"d":2}] ,"e" :"x" } ');
    const seen: string[] = [];
    const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
      seen.push(`${bytes.toString('utf8', keyStart, keyEnd)}=${bytes.toString('utf8', valueStart, valueEnd)}`);
      return undefined;
    });
    expect(seen).toEqual(['a=1', 'b\\"c=[1,{"d":2}]', 'e="x"']);
    expect(skipSpace(bytes, after, bytes.length)).toBe(bytes.length);
  });

  test('elements are found with their bounds, up to the requested number', () => {
    const bytes = Buffer.from('[1, {"a":[2]} ,"x", not looked at');
    const seen: string[] = [];
    eachElement(bytes, 0, bytes.length, 0, (start, end) => {
      seen.push(bytes.toString('utf8', start, end));
      return seen.length < 3;
    });
    expect(seen).toEqual(['1', '{"a":[2]}', '"x"']);
  });

  test('high bytes are recorded, so that only text with such bytes is checked for UTF-8', () => {
    scanFacts.sawHighByte = false;
    scannerAccepts('{"a":"plain"}');
    expect(scanFacts.sawHighByte).toBe(false);
    scannerAccepts('{"a":"\u00e9"}');
    expect(scanFacts.sawHighByte).toBe(true);
  });
});
