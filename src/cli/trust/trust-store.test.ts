import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { TrustStore } from './trust-store.js';

let folder: string;
let store: TrustStore;
beforeEach(() => {
  folder = path.join(mkdtempSync(path.join(os.tmpdir(), 'hostler-trust-')), 'data');
  store = new TrustStore(folder);
});
afterEach(() => rmSync(path.dirname(folder), { recursive: true, force: true }));

const location = { file: '/p/hostler.json', folder: '/p', uid: 1_000 };
const at = new Date(0);

test('E8 a confirmation counts for one file, one folder and one owner', () => {
  store.confirm(location, ['d1', 'd2'], at);
  expect(store.find(location)).toEqual(new Set(['d1', 'd2']));
  expect(store.find({ ...location, file: '/q/hostler.json' })).toBeUndefined();
  expect(store.find({ ...location, folder: '/q' })).toBeUndefined();
  expect(store.find({ ...location, uid: 0 })).toBeUndefined();
});

test('a new confirmation replaces the one before', () => {
  store.confirm(location, ['d1', 'd2'], at);
  store.confirm({ ...location, uid: 7 }, ['d2'], at);
  expect([store.find(location), store.find({ ...location, uid: 7 })]).toEqual([undefined, new Set(['d2'])]);
  expect(store.list()).toHaveLength(1);
});

test('E8 only its user can read the store, and no temporary file is left', () => {
  store.confirm(location, [], at);
  expect([statSync(folder).mode & 0o777, statSync(store.path).mode & 0o777]).toEqual([0o700, 0o600]);
  expect(readdirSync(folder)).toEqual(['trust.json']);
});

test.each([
  ['that others may write', () => chmodSync(store.path, 0o666)],
  [
    'that is a link',
    () => {
      writeFileSync(`${store.path}.other`, readFileSync(store.path));
      rmSync(store.path);
      symlinkSync(`${store.path}.other`, store.path);
    },
  ],
  ['that does not parse', () => writeFileSync(store.path, '{"files":')],
  [
    'of another shape',
    () => writeFileSync(store.path, JSON.stringify({ files: [{ ...location, digests: 'd1' }, null, 7] })),
  ],
])('E8 a store %s confirms nothing, and is replaced by the next confirmation', (_name, spoil) => {
  store.confirm(location, ['d1'], at);
  spoil();
  expect(store.list()).toEqual([]);
  store.confirm(location, ['d1'], at);
  expect(store.find(location)).toEqual(new Set(['d1']));
  expect(statSync(store.path).mode & 0o777).toBe(0o600);
});

test('E8 a folder that others may write to is refused', () => {
  mkdirSync(folder);
  chmodSync(folder, 0o777);
  expect(() => store.find(location)).toThrow('other users may write');
  expect(() => store.confirm(location, [], at)).toThrow('other users may write');
});

test('E8 the number of files is bounded, and the oldest are dropped first', () => {
  const files = Array.from({ length: 1_000 }, (_, i) => ({ ...location, file: `/p/${i}`, at: '', digests: [] }));
  mkdirSync(folder, { mode: 0o700 });
  writeFileSync(store.path, JSON.stringify({ files }), { mode: 0o600 });
  store.confirm(location, ['d1'], at);
  expect(store.list()).toHaveLength(1_000);
  expect([store.find({ ...location, file: '/p/0' }), store.find({ ...location, file: '/p/1' })]).toEqual([
    undefined,
    new Set(),
  ]);
});

test('a part is added to the confirmation of its file, and to no other', () => {
  expect(store.extend(location.file, 'd3')).toBe(false);
  expect(readdirSync(path.dirname(folder))).toEqual([]);
  store.confirm(location, ['d1'], at);
  expect(store.extend(location.file, 'd3')).toBe(true);
  expect(store.find(location)).toEqual(new Set(['d1', 'd3']));
});

test('a confirmation can be withdrawn', () => {
  store.confirm(location, ['d1'], at);
  expect([store.remove('/elsewhere'), store.remove(location.file), store.find(location)]).toEqual([0, 1, undefined]);
});
