import { expect, test } from 'vitest';
import { call } from '../call.js';
import { parseCommandArgs } from '../command.js';
import { exampleArguments, signatureOf } from './signature.js';

test('a signature has the types of the schema, required parameters first', () => {
  const schema = {
    type: 'object',
    properties: {
      limit: { type: 'integer' },
      query: { type: 'string' },
      'in-file': { type: ['string', 'null'] },
      tags: { type: 'array', items: { enum: ['a', 'b'] } },
      where: { $ref: '#/$defs/place' },
      deep: {
        type: 'object',
        properties: { a: { type: 'object', properties: { b: { type: 'object', properties: { c: {} } } } } },
      },
      any: {},
    },
    required: ['query', 'where'],
    $defs: { place: { type: 'object', properties: { lat: { type: 'number' } }, required: ['lat'] } },
  };
  expect(signatureOf('find', schema)).toBe(
    'find(query: string, where: { lat: number }, limit?: integer, "in-file"?: string | null, tags?: ("a" | "b")[], ' +
      'deep?: { a?: { b?: { c?: unknown } } }, any?: unknown)',
  );
  expect(exampleArguments(schema)).toBe("query=text where:='{}'");
  expect([signatureOf('none', {}), exampleArguments({})]).toEqual(['none()', '']);
});

test('an example can be pasted, whatever the server calls a parameter', () => {
  const name = '$(id);x y';
  expect(exampleArguments({ type: 'object', properties: { [name]: {} }, required: [name] })).toBe(`'${name}'=text`);
});

test('a parameter with the name of an option is no option of the pasted command', () => {
  const properties = { '--config': { enum: ['hostler.json'] }, query: {} };
  const words = exampleArguments({ type: 'object', properties, required: ['--config', 'query'] }).split(' ');
  const parsed = parseCommandArgs(call, ['files.find', ...words]);
  expect([parsed.text('config'), parsed.positionals.slice(1)]).toEqual([
    undefined,
    ['--config=hostler.json', 'query=text'],
  ]);
});

test('no schema of a server can make the signature longer than its bound', () => {
  const loop = { properties: { a: { $ref: '#' } }, required: ['a'] };
  expect(signatureOf('t', loop).length).toBeLessThan(200);
  const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`p${i}`, { type: 'string' }]));
  expect(signatureOf('t', { properties: many })).toMatch(/p39\?: string, \.\.\.\)$/);
});
