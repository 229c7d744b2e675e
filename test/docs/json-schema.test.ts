/** hostler.schema.json matches the definitions and describes every key. `UPDATE=1` rewrites it. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { hostConfigKeys } from '../../src/config/known-keys.js';
import { bareJsonSchema, hostConfigJsonSchema, hostConfigSchemaKeys, keysIn } from './json-schema.js';
import { descriptions } from './schema-descriptions.js';

const pathOf = (file: string): string => fileURLToPath(new URL(`../../${file}`, import.meta.url));
const file = pathOf('hostler.schema.json');

/** The text as `npm run check` wants it. */
const formatted = (text: string): string =>
  execFileSync(
    process.execPath,
    [pathOf('node_modules/@biomejs/biome/bin/biome'), 'format', `--stdin-file-path=${file}`],
    {
      cwd: pathOf(''),
      input: text,
      encoding: 'utf8',
      stdio: ['pipe', 'pipe', 'inherit'],
    },
  );

test('the published schema equals the generated one', () => {
  const generated = formatted(JSON.stringify(hostConfigJsonSchema(), null, 2));
  if (process.env.UPDATE) writeFileSync(file, generated);
  expect(readFileSync(file, 'utf8'), 'UPDATE=1 npx vitest run test/docs/json-schema.test.ts rewrites it').toBe(
    generated,
  );
});

const keys = keysIn(hostConfigJsonSchema());

test('every key has a description of its own path', () => {
  const wrong = keys.filter(([path, { description }]) => !description || description !== descriptions.get(path));
  expect(wrong.map(([path]) => path)).toEqual([]);
});

test('every description has a key', () => {
  const paths = new Set(keys.map(([path]) => path));
  expect([...descriptions.keys()].filter((path) => !paths.has(path))).toEqual([]);
});

test('every description consists of sentences', () => {
  expect([...descriptions].filter(([, text]) => !/^[A-Z`].*\.$/.test(text))).toEqual([]);
});

test('the definitions, which each start of Hostler loads, have no descriptions', () => {
  expect(keysIn(bareJsonSchema()).filter(([, { description }]) => description !== undefined)).toEqual([]);
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
