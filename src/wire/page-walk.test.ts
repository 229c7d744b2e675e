import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { membersBytes } from './json-members.js';
import { eachElement } from './json-scan.js';
import { type PageLimits, walkPage } from './page-walk.js';

const KiB = 1024;
const limits: PageLimits = { sliceBytes: 64 * KiB, elementBytes: 16 * KiB, elements: 50_000, memberBytes: 16 * KiB };
const keys = ['ttlMs', 'nextCursor'];

/** The items found, and the number of slices. */
function read(text: string, by: PageLimits = limits) {
  const bytes = Buffer.from(text);
  const walk = walkPage(bytes, 'tools', keys, by);
  let slices = 1;
  let step = walk.next();
  for (; !step.done; step = walk.next()) slices++;
  if (typeof step.value === 'string') return { slices, fault: step.value };
  const { bounds, members } = step.value;
  const items = bounds.flatMap((from, i) => (i % 2 ? [] : [bytes.toString('utf8', from, bounds[i + 1])]));
  return { slices, items, members: members.map((member) => member?.toString('utf8')) };
}

describe('a page', () => {
  test.each([
    ['{"tools":[{"a":1}, 2 ,{"b":[{}]}],"ttlMs":5}', ['{"a":1}', '{"b":[{}]}'], ['5', undefined]],
    [' { "nextCursor" : "c" , "tools" : [ ] } ', [], [undefined, '"c"']],
    ['{"tools":[{}],"tools":[{}]}', [], [undefined, undefined]],
    ['{"tools":[{}],"t\\u006fols":{}}', [], [undefined, undefined]],
    ['{"ttlMs":1,"ttlMs":2,"tools":[{}]}', ['{}'], [undefined, undefined]],
    ['{"tools":{"0":{}}}', [], [undefined, undefined]],
    ['{}', [], [undefined, undefined]],
    ['[{}]', [], [undefined, undefined]],
    ['{"tools":[{}', [], [undefined, undefined]],
    ['', [], [undefined, undefined]],
  ])('%s', (text, items, members) => {
    expect(read(text)).toEqual({ slices: 1, items, members });
  });

  test('X18 that repeats its list is bounded over all repetitions', () => {
    const list = `"tools":[${'{},'.repeat(9)}{}]`;
    const by = { ...limits, elements: 25 };
    expect(read(`{${list},${list}}`, by)).toMatchObject({ items: [] });
    expect(read(`{${list},${list},${list}}`, by)).toMatchObject({ fault: 'too_many_elements' });
  });

  test('gives the same result as the functions that read it at once', () => {
    const member = fc.tuple(fc.constantFrom('tools', ...keys, 'x', 't\\u006fols'), fc.json({ maxDepth: 4 }));
    fc.assert(
      fc.property(fc.array(member, { maxLength: 5 }), fc.nat(40), (members, sliceBytes) => {
        const text = `{${members.map(([key, value]) => `"${key}":${value}`).join(' , ')}}`;
        const bytes = Buffer.from(text);
        const [array, ...others] = membersBytes(bytes, ['tools', ...keys]);
        const items: string[] = [];
        if (array)
          eachElement(array, 0, array.length, 0, (from, to) => {
            if (array[from] === 0x7b) items.push(array.toString('utf8', from, to));
            return undefined;
          });
        expect(read(text, { ...limits, sliceBytes })).toMatchObject({
          items,
          members: others.map((each) => each?.toString('utf8')),
        });
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('X18 a page that is large', () => {
  test('is read in slices, none larger than its bytes and one element', () => {
    const item = `{"name":"${'x'.repeat(10 * KiB)}"}`;
    const text = `{"tools":[${Array.from({ length: 400 }, () => item).join()}]}`;
    const { slices, items } = read(text);
    expect(items).toHaveLength(400);
    expect(slices).toBeGreaterThanOrEqual(Math.floor(text.length / (limits.sliceBytes + item.length + 1)));
  });

  const zeros = (count: number) => `[${'0,'.repeat(count)}0]`;
  test.each([
    ['an array of two million', `{"tools":${zeros(2_000_000)}}`, 'too_many_elements', 14],
    ['a million schemas in one tool', `{"tools":[{"anyOf":[${'{},'.repeat(1_000_000)}{}]}]}`, 'element_too_large', 1],
    ['one tool that is too large behind others', `{"tools":[{},{},"${'x'.repeat(17 * KiB)}"]}`, 'element_too_large', 1],
    ['a long number', `{"tools":[${'1'.repeat(17 * KiB)}]}`, 'element_too_large', 1],
    ['a large member besides its list', `{"_meta":${zeros(2_000_000)},"tools":[]}`, 'member_too_large', 1],
    ['a list that is no array', `{"tools":{"a":${zeros(2_000_000)}}}`, 'member_too_large', 1],
  ])('%s: it is refused before the rest is read', (_what, text, fault, slices) => {
    expect(read(text)).toEqual({ slices, fault });
  });

  test('elements and members at the limit are accepted', () => {
    const text = (bytes: number) => `{"tools":["${'x'.repeat(bytes - 2)}",{}]}`;
    expect(read(text(limits.elementBytes))).toMatchObject({ items: ['{}'] });
    expect(read(text(limits.elementBytes + 1))).toMatchObject({ fault: 'element_too_large' });
  });
});
