import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { setAside } from './database-file.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-aside-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string) => path.join(folder, name);
const aside = (text: string) => {
  writeFileSync(at('state.db'), text);
  writeFileSync(at('state.db-wal'), `log of ${text}`);
  return path.basename(setAside(at('state.db')));
};

test('each set-aside file is beside the earlier ones with its log, and nothing is left at the original path', () => {
  expect([aside('one'), aside('two')]).toEqual(['state.db.unusable', 'state.db.unusable-2']);
  expect(readFileSync(at('state.db.unusable'), 'utf8')).toBe('one');
  expect(readFileSync(at('state.db.unusable-2-wal'), 'utf8')).toBe('log of two');
  expect([existsSync(at('state.db')), existsSync(at('state.db-wal'))]).toEqual([false, false]);
});

test('at most five files are kept: the oldest is deleted with its log', () => {
  const all = Array.from({ length: 12 }, (_, i) => aside(`${i + 1}`));
  expect(all.at(-1)).toBe('state.db.unusable-12');
  const kept = [8, 9, 10, 11, 12].flatMap((n) => [`state.db.unusable-${n}`, `state.db.unusable-${n}-wal`]);
  expect(readdirSync(folder).sort()).toEqual(kept.sort());
  for (const n of [8, 12]) expect(readFileSync(at(`state.db.unusable-${n}`), 'utf8')).toBe(`${n}`);
});
