import { expect, test } from 'vitest';
import { listsOf, malformed } from '../../test/fixtures/servers/malformed-lists.mjs';
import type { ListMethod } from '../session/lists.js';
import { checkAhead, checkItem, faultsIn, soundBy, trustSound } from './list-repair.js';
import { repairNotes } from './repair-notes.js';

const methods = {
  tools: ['tools/list', 'name'],
  prompts: ['prompts/list', 'name'],
  resources: ['resources/list', 'uri'],
  resourceTemplates: ['resources/templates/list', 'uriTemplate'],
} as const;

const itemOf = (value: Readonly<Record<string, unknown>>, member = 'name') => ({
  key: typeof value[member] === 'string' ? (value[member] as string) : '',
  raw: Buffer.from(JSON.stringify(value)),
});

/** Left out and repaired keys of all lists. */
function treated(name: string) {
  const leftOut: string[] = [];
  const repaired: string[] = [];
  for (const [list, [method, member]] of Object.entries(methods))
    for (const value of listsOf(name)[list as keyof typeof methods]) {
      const item = itemOf(value, member);
      const fault = checkItem(method, item);
      if (fault && !fault.item) leftOut.push(item.key);
      else if (fault && fault.fields.length > 0) repaired.push(item.key);
    }
  return { leftOut, repaired };
}

test.each(Object.keys(malformed))('%s: items are repaired or left out as the table of fixtures says', (name) => {
  const { leftOut = [], repaired = [] } = malformed[name as keyof typeof malformed] as Record<string, string[]>;
  expect(treated(name)).toEqual({ leftOut, repaired });
});

const repaired = (value: object, method: ListMethod = 'tools/list') =>
  checkItem(method, itemOf(value as Record<string, unknown>))?.item?.raw.toString();

test('a repair edits only the faulty member', () => {
  const text = '{ "name":"a","inputSchema": {"properties":{"n":{"const":9007199254740993}} },"x":1.0}';
  expect(checkItem('tools/list', { key: 'a', raw: Buffer.from(text) })?.item?.raw.toString()).toBe(
    '{"name":"a","inputSchema": {"type":"object","properties":{"n":{"const":9007199254740993}}},"x":1.0}',
  );
});

test('boolean properties become the object schemas with the same meaning', () => {
  const inputSchema = { type: 'object', properties: { a: true, b: false, c: null } };
  expect(repaired({ name: 'a', inputSchema })).toBe(
    '{"name":"a","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{}}}}',
  );
});

test('a tool whose faulty member is given twice is left out instead of repaired', () => {
  const raw = Buffer.from('{"name":"a","inputSchema":{},"inputSchema":{"type":"object"}}');
  expect(checkItem('tools/list', { key: 'a', raw })?.item).toBeUndefined();
});

test('a union at the top of the argument schema becomes a sentence, but only at endpoints of several servers', () => {
  const [, value] = listsOf('top-level-union').tools;
  const item = itemOf(value as Record<string, unknown>);
  const shown = checkItem('tools/list', item)?.item;
  expect(shown?.raw).toEqual(item.raw);
  expect(JSON.parse(String(shown?.joined))).toEqual({
    name: 'bad',
    description:
      'Reads one of two.\n\nThe arguments must match exactly one of these JSON schemas: [{"required":["a"]},{"required":["b"]}]',
    inputSchema: { type: 'object', properties: { a: { type: 'object' }, b: { type: 'object' } } },
  });
});

test('faults are reported in one sentence for each kind of item and treatment', () => {
  const items = ['no-schema', 'type-string', 'required-flag'].map((name, i) =>
    itemOf({ ...listsOf(name).tools[1], name: `tool${i}` }),
  );
  const faults = new Map([...faultsIn('tools/list', items)].map(([{ key }, fault]) => [key, fault]));
  expect(repairNotes(new Map([['tools/list', faults]]))).toEqual([
    '1 tool left out of lists: tool1 (inputSchema.type)',
    '2 tools repaired in lists: tool0 (inputSchema), tool2 (inputSchema.required)',
  ]);
});

test('a long list is checked in slices, with the same result', async () => {
  const items = Array.from({ length: 3_000 }, (_, i) =>
    itemOf({
      name: `t${i}`,
      description: 'x'.repeat(200),
      ...(i % 1_000 === 0 ? {} : { inputSchema: { type: 'object' } }),
    }),
  );
  expect(checkAhead('tools/list', items.slice(0, 10))).toBeUndefined();
  await checkAhead('tools/list', items);
  expect([...faultsIn('tools/list', items).keys()].map(({ key }) => key)).toEqual(['t0', 't1000', 't2000']);
});

test('a stored list without faults is not checked again by the same rules', () => {
  const good = [itemOf({ name: 'a', inputSchema: { type: 'object' } })];
  const bad = [itemOf({ name: 'b', inputSchema: { type: 'string' } })];
  expect([soundBy(good), faultsIn('tools/list', good).size, faultsIn('tools/list', bad).size]).toEqual([
    undefined,
    0,
    1,
  ]);
  const version = soundBy(good);
  expect([version, soundBy(bad)]).toEqual([expect.any(Number), undefined]);
  // Faulty lists show whether they are checked.
  for (const [stored, faults] of [
    [version, 0],
    [(version as number) - 1, 1],
    [undefined, 1],
  ] as const) {
    const items = [...bad];
    trustSound(items, stored);
    expect(faultsIn('tools/list', items).size).toBe(faults);
  }
});
