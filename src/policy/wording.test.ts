import { describe, expect, test } from 'vitest';
import { differInWordingOnly, fieldChanges } from './wording.js';

const tool = (inputSchema: object, more: object = {}) => JSON.stringify({ name: 't', inputSchema, ...more });
const base = tool(
  { type: 'object', properties: { a: { type: 'string', description: 'old' } } },
  { description: 'old' },
);

describe('wording', () => {
  test.each<[string, string, string]>([
    [
      'the description of the tool',
      base,
      tool({ type: 'object', properties: { a: { type: 'string', description: 'old' } } }, { description: 'new' }),
    ],
    [
      'a title that is added',
      base,
      tool(
        { type: 'object', properties: { a: { type: 'string', description: 'old' } } },
        { description: 'old', title: 'T' },
      ),
    ],
    [
      'texts of a property',
      base,
      tool(
        { type: 'object', properties: { a: { type: 'string', title: 'A', $comment: 'c', examples: [{ x: 1 }] } } },
        { description: 'old' },
      ),
    ],
    [
      'texts in nested schemas',
      tool({ anyOf: [{ items: { title: 'x' } }], $defs: { d: { title: 'x' } } }),
      tool({ anyOf: [{ items: { title: 'y' } }], $defs: { d: { description: 'y' } } }),
    ],
  ])('%s', (_name, before, after) => {
    expect(differInWordingOnly(before, after)).toBe(true);
    expect(fieldChanges(before, after).map(({ kind }) => kind)).not.toContain('schema');
  });
});

describe('not wording', () => {
  test.each<[string, string, string]>([
    ['a default', tool({ default: 1 }), tool({ default: 2 })],
    ['an enum', tool({ enum: ['a'] }), tool({ enum: ['b'] })],
    [
      'a property named title',
      tool({ properties: { title: { type: 'string' } } }),
      tool({ properties: { title: { type: 'number' } } }),
    ],
    [
      'a property that has only a description',
      tool({ properties: { a: { description: 'x' }, b: {} } }),
      tool({ properties: { b: {} } }),
    ],
    [
      'a property named description that is removed',
      tool({ properties: { description: { description: 'x' } } }),
      tool({ properties: {} }),
    ],
    ['a description that is no text', tool({ description: 'x' }), tool({ description: { type: 'string' } })],
    ['the title of annotations', tool({}, { annotations: { title: 'a' } }), tool({}, { annotations: { title: 'b' } })],
    ['a text in an unknown member', tool({ 'x-ui': { description: 'a' } }), tool({ 'x-ui': { description: 'b' } })],
    ['a text within a default', tool({ default: { description: 'a' } }), tool({ default: { description: 'b' } })],
    [
      'an example that a reference uses',
      tool({ $ref: '#/examples/0', examples: [{ type: 'string' }] }),
      tool({ $ref: '#/examples/0', examples: [{}] }),
    ],
    [
      'an example that an encoded reference uses',
      tool({ $ref: '#/%65xamples/0', examples: [{ type: 'string' }] }),
      tool({ $ref: '#/%65xamples/0', examples: [{}] }),
    ],
    [
      'an anchor that may be in an example',
      tool({ $ref: '#a', examples: [{ $anchor: 'a' }] }),
      tool({ $ref: '#a', examples: [{ $anchor: 'a', type: 'null' }] }),
    ],
    [
      'the last digit of a large integer',
      '{"inputSchema":{"const":9007199254740993}}',
      '{"inputSchema":{"const":9007199254740992}}',
    ],
    ['the name', '{"name":"a"}', '{"name":"b"}'],
    ['examples of the tool itself', tool({}, { examples: [1] }), tool({}, { examples: [2] })],
  ])('%s', (_name, before, after) => {
    expect(differInWordingOnly(before, after)).toBe(false);
  });
});

test('the fields with the largest effect come first', () => {
  const after = JSON.stringify({
    ...{ name: 't', description: 'new', icons: [], annotations: { readOnlyHint: true } },
    inputSchema: { type: 'object', properties: { a: { type: 'number', description: 'old' } } },
  });
  expect(fieldChanges(base, after).map(({ field, kind }) => `${kind} ${field}`)).toEqual([
    'annotations annotations.readOnlyHint',
    'schema inputSchema.properties.a.type',
    'other icons',
    'text description',
  ]);
});
