import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { expressionsMax, UriTemplate, UriText, uriCharsMax } from './uri-templates.js';

const matches = (template: string, uri: string): boolean =>
  UriTemplate.parse(template)?.matches(new UriText(uri)) ?? false;

describe('a URI and a template', () => {
  test.each([
    ['test://template/{id}/data', 'test://template/7/data', true],
    ['test://template/{id}/data', 'test://template/7/8/data', false],
    ['test://template/{id}/data', 'test://template/7/data/x', false],
    ['file:///{+path}', 'file:///a/b/c', true],
    ['file:///{path}', 'file:///a/b/c', false],
    ['file:///{+folder}/{name}.txt', 'file:///a/b/c.txt', true],
    ['file:///{+folder}/{name}.txt', 'file:///c.txt', false],
    ['x://{+a}-{b}/c', 'x://1-2/3-4/c', true],
    ['x://{a}-{b}', 'x://1-2-3', true],
    ['x://{a}{b}/c', 'x://12/c', true],
    ['x://{a}/b{c}/d', 'x://1/b2/d', true],
    ['x://{a}/b{c}/d', 'x://1/c2/d', false],
    ['x://q{?a,b}', 'x://q?a=1&b=2', true],
    ['x://plain', 'x://plain', true],
    ['x://plain', 'x://plainer', false],
    ['x://aa{b}aa', 'x://aaa', false],
    ['x://{+a}/{b}/{+c}', 'x://1/2/3/4/5', true],
    ['x://{broken', 'x://1', false],
    ['x://{}', 'x://1', false],
    ['x://}', 'x://}', false],
  ])('%s matches %s: %s', (template, uri, expected) => {
    expect(matches(template, uri)).toBe(expected);
  });

  test('E9 a template or URI beyond the limits does not match', () => {
    expect(UriTemplate.parse(`x://${'{a}'.repeat(expressionsMax + 1)}`)).toBeUndefined();
    expect(UriTemplate.parse(`x://${'a'.repeat(2_048)}`)).toBeUndefined();
    expect(matches('x://{+a}', `x://${'a'.repeat(uriCharsMax)}`)).toBe(false);
  });

  // The seed of a failure is printed by fast-check.
  test('E9 matching gives the same answer as trying every possibility', () => {
    const part = fc.constantFrom('a', 'b', '/', 'ab', 'aa', 'a/b', '/a', '{x}', '{+y}', '{x}', '{+y}');
    const text = fc.array(fc.constantFrom('a', 'b', '/', 'ab', 'aab'), { maxLength: 12 });
    const expansion = fc.tuple(fc.array(part, { maxLength: 9 }), fc.array(text, { minLength: 9, maxLength: 9 }));
    fc.assert(
      fc.property(expansion, text, ([parts, values], other) => {
        const template = parts.join('');
        const expanded = parts.map((each, i) => (each.startsWith('{') ? (values[i] as string[]).join('') : each));
        return [expanded.join(''), other.join('')].every(
          (uri) => matches(template, uri) === matchesNaively(parts, uri),
        );
      }),
      { numRuns: 1_500 },
    );
  });
});

describe('E9 matching is linear', () => {
  const uri = (unit: string) => `x://${unit.repeat(8_000)}`.slice(0, 8_000);

  test.each([
    ['any text, then a literal that is missing', `x://{+a}${'!{+a}'.repeat(31)}`, uri('x')],
    ['any text between runs of one letter', `x://{+a}${'xxxxxxxxy{+a}'.repeat(31)}`, uri('x')],
    ['literals found far apart', `x://{+a}${'y{+a}'.repeat(30)}z{+a}`, uri(`${'x'.repeat(250)}y`)],
    ['a literal whose right part matches everywhere', `x://{+a}${'zxyxy{+a}'.repeat(31)}`, uri('xy')],
    ['a long literal that nearly occurs everywhere', `x://{+a}${'x'.repeat(1_000)}y{+b}`, uri('x')],
    ['a long literal that differs in its first letter', `x://{+a}y${'x'.repeat(1_000)}{+b}`, uri('x')],
    ['names in one segment', `x://${'{a}xxy'.repeat(expressionsMax)}`, uri('x')],
    ['names in one segment from the right', `x://{+z}${'y{a}'.repeat(31)}`, uri('x')],
    ['names in segments', `x://${`{a}/${'x'.repeat(50)}`.repeat(7)}{+a}y{+b}`, uri(`${'x'.repeat(200)}/`)],
    ['names in segments between any text', `x://{+y}${'/{a}x'.repeat(30)}y{+z}`, uri('x/')],
  ])('%s', (_title, template, text) => {
    const parsed = UriTemplate.parse(template);
    const asked = new UriText(text);
    expect(parsed?.matches(asked)).toBe(false);
    // The text was read nearly to its end, and not much more than twice.
    expect(asked.meter.steps).toBeGreaterThan(text.length / 2);
    expect(asked.meter.steps).toBeLessThanOrEqual(2 * text.length + template.length);
  });
});

/** Tries every possibility: for each part, all positions in the URI where it can end. `{x}` between two `{+y}` may match slashes. */
function matchesNaively(parts: readonly string[], uri: string): boolean {
  const isWide = (part: string) => part === '{+y}';
  const merged: string[] = [];
  for (const part of parts) {
    const before = merged.at(-1) ?? '';
    if (part.startsWith('{') && before.startsWith('{')) merged[merged.length - 1] = isWide(before) ? before : part;
    else merged.push(part);
  }
  const [first, last] = [merged.findIndex(isWide), merged.findLastIndex(isWide)];
  let reached = new Set([0]);
  merged.forEach((part, i) => {
    const next = new Set<number>();
    for (const from of reached) {
      if (!part.startsWith('{')) {
        if (uri.startsWith(part, from)) next.add(from + part.length);
        continue;
      }
      const maySpanSlashes = isWide(part) || (i > first && i < last);
      for (let to = from; to <= uri.length; to++) {
        if (!maySpanSlashes && uri.slice(from, to).includes('/')) break;
        next.add(to);
      }
    }
    reached = next;
  });
  return reached.has(uri.length);
}
