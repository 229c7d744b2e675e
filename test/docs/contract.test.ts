/**
 * The ids that tests are named by are explained in docs/contract.md, each with a file that really names it.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const id = /AC-[A-Z]+\d+|D-\d{2}|N-[A-Z]+\d+|[PFSKBXLWE]\d{1,2}/.source;

function testFiles(folder: string): string[] {
  return readdirSync(path.join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : testFiles(name);
    return /\.(test|long)\.ts$/.test(entry.name) ? [name] : [];
  });
}

/** The ids at the start of titles of tests and groups. */
const idsIn = (text: string): string[] =>
  [...text.matchAll(new RegExp(`\\b(?:test|describe)[^\\n]{0,80}\\(\\s*['"\`](${id})\\b`, 'g'))].map(
    (match) => match[1] as string,
  );

const named = new Map<string, string[]>();
for (const file of [...testFiles('src'), ...testFiles('test')]) {
  for (const found of idsIn(readFileSync(path.join(root, file), 'utf8')))
    named.set(found, [...(named.get(found) ?? []), file]);
}

const rows = readFileSync(path.join(root, 'docs/contract.md'), 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, key] = new RegExp(`^\\| (${id}) +\\|`).exec(line) ?? [];
    return key === undefined
      ? []
      : [{ key, files: [...line.matchAll(/`((?:src|test)\/[\w./-]+)`/g)].map((match) => match[1] as string) }];
  });

test('every id that a test is named by is explained once', () => {
  expect(named.size).toBeGreaterThan(10);
  expect([...named.keys()].sort()).toEqual(rows.map(({ key }) => key).sort());
});

test('every row names the files that prove it', () => {
  for (const { key, files } of rows)
    expect([key, [...new Set(named.get(key))].sort()]).toEqual([key, [...files].sort()]);
});
