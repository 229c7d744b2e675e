/** hostler.schema.json matches the definitions. `UPDATE=1` rewrites it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { hostConfigKeys } from '../../src/config/known-keys.js';
import { hostConfigJsonSchema, hostConfigSchemaKeys } from './json-schema.js';

const file = new URL('../../hostler.schema.json', import.meta.url);

test('the published schema equals the generated one', () => {
  const generated = `${JSON.stringify(hostConfigJsonSchema(), null, 2)}\n`;
  if (process.env.UPDATE) writeFileSync(file, generated);
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(JSON.parse(generated));
});

test('the schema has every key of the top level', () => {
  expect([...hostConfigSchemaKeys].sort()).toEqual([...hostConfigKeys].sort());
});

test('the schema has the keys of both kinds of servers, and no others', () => {
  const text = JSON.stringify(hostConfigJsonSchema());
  for (const key of ['command', 'headers', 'trustAnnotations', 'rename', 'allowedOrigins', 'expires'])
    expect([key, text.includes(`"${key}":{`)]).toEqual([key, true]);
  expect(text).toContain('"additionalProperties":false');
});
