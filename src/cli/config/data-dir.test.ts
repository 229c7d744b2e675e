import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { controlPath } from '../control/control-protocol.js';
import { dataDirOf, prepareDataDir } from './data-dir.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-data-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const env = { HOME: '/h', XDG_CONFIG_HOME: folder };
const own = path.join(folder, 'hostler', 'hostler.json');
mkdirSync(path.dirname(own));
writeFileSync(own, '{}');

test('R5 the configuration of the user uses the data folder itself, also through a link', () => {
  expect(dataDirOf(own, env)).toBe('/h/.local/share/hostler');
  const link = path.join(folder, 'link.json');
  symlinkSync(own, link);
  expect(dataDirOf(link, env)).toBe('/h/.local/share/hostler');
  expect(dataDirOf(undefined, env)).toBe('/h/.local/share/hostler');
});

test('R5 every other file has a data directory of its own, which stays the same', () => {
  const [one, other] = ['/w/My Shop/hostler.json', '/w/My Shop/other.json'].map((file) => dataDirOf(file, env));
  expect(one).toMatch(/^\/h\/\.local\/share\/hostler\/projects\/my-shop-[0-9a-f]{10}$/);
  expect(other).not.toBe(one);
  expect(dataDirOf('/w/x/../My Shop/hostler.json', env)).toBe(one);
});

test('R5 a socket fits into the data directory of the longest folder and a long home', () => {
  const home = `/home/${'u'.repeat(32)}`;
  for (const name of ['f'.repeat(255), '漢'.repeat(80), '/'])
    expect(() => controlPath(dataDirOf(`/w/${name}/hostler.json`, { ...env, HOME: home }))).not.toThrow();
});

test('without a home folder there is no data directory, and the error says what to set', () => {
  expect(() => dataDirOf('/w/hostler.json', {})).toThrow(
    expect.objectContaining({ hint: expect.stringContaining('--data-dir') }),
  );
});

test('folders are made down to the data directory, for their user alone', () => {
  const made = path.join(folder, 'a/b/c');
  prepareDataDir(made);
  prepareDataDir(made);
  expect([made, path.dirname(made)].map((each) => statSync(each).mode & 0o777)).toEqual([0o700, 0o700]);
});

test('a folder in which nothing can be created is an error, not a loop', () => {
  expect(() => prepareDataDir('/proc/hostler/data')).toThrow(
    expect.objectContaining({ hint: expect.stringContaining('--data-dir') }),
  );
});
