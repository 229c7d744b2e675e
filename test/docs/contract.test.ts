/**
 * Every id in a test title has one entry in docs/contract/, and each entry names the files that have the id in a title.
 * `UPDATE_CONTRACT=1` writes the lists of files again.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const id = /AC-[A-Z]+\d+|D-\d{2}|N-[A-Z]+\d+|[PFSKBXLWER]\d{1,2}/.source;

function testFiles(folder: string): string[] {
  return readdirSync(path.join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : testFiles(name);
    return /\.(test|long)\.ts$/.test(entry.name) ? [name] : [];
  });
}

/** The ids at the start of titles of tests and groups, also after the table of `test.each`. A title may begin with several. */
const title = new RegExp(`(?:\\b(?:test|describe)[^\\n]{0,80}|\\))\\(\\s*['"\`](${id}(?:(?:,| and)? ${id})*)\\b`, 'g');
const idsIn = (text: string): string[] =>
  [...text.matchAll(title)].flatMap(([, ids = '']) => ids.match(new RegExp(id, 'g')) ?? []);

const named = new Map<string, string[]>();
for (const file of [...testFiles('src'), ...testFiles('test')]) {
  for (const found of idsIn(readFileSync(path.join(root, file), 'utf8')))
    named.set(found, [...(named.get(found) ?? []), file]);
}

const pages = path.join(root, 'docs/contract');
const entry = new RegExp(`^## (${id})\\n[^]*?^(- Tests:[^]*?)\\n(?=\\n|$(?![^]))`, 'gm');

/** `- Tests: ...`, wrapped as the formatter wraps it. */
function fileList(files: readonly string[]): string {
  const lines = ['- Tests:'];
  for (const each of files.map((file, at) => `\`${file}\`${at < files.length - 1 ? ',' : ''}`)) {
    const last = lines.length - 1;
    if (`${lines[last]} ${each}`.length <= 120) lines[last] += ` ${each}`;
    else lines.push(`  ${each}`);
  }
  return lines.join('\n');
}

const filesOf = (key: string): string[] => [...new Set(named.get(key))].sort();

if (process.env.UPDATE_CONTRACT !== undefined)
  for (const page of readdirSync(pages)) {
    const text = readFileSync(path.join(pages, page), 'utf8');
    const updated = text.replace(entry, (whole, key: string, list: string) =>
      whole.replace(list, () => fileList(filesOf(key))),
    );
    writeFileSync(path.join(pages, page), updated);
  }

const texts = readdirSync(pages).map((page) => readFileSync(path.join(pages, page), 'utf8'));
const rows = texts.flatMap((text) =>
  [...text.matchAll(entry)].map(([, key = '', list = '']) => ({
    key,
    files: [...list.matchAll(/`((?:src|test)\/[\w./-]+)`/g)].map((match) => match[1] as string),
  })),
);

test('every id in a test title has exactly one entry', () => {
  expect(named.size).toBeGreaterThan(10);
  expect(texts.flatMap((text) => [...text.matchAll(/^## /gm)])).toHaveLength(rows.length + 2);
  expect([...named.keys()].sort()).toEqual(rows.map(({ key }) => key).sort());
});

test('every entry names the files of its tests', () => {
  for (const { key, files } of rows) expect([key, filesOf(key)]).toEqual([key, [...files].sort()]);
});

test('no line is longer than 200 characters', () => {
  for (const text of texts) for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(200);
});
