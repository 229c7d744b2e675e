/** The key file in a real directory: its permissions, refused files, and simultaneous first starts. */
import { execFile } from 'node:child_process';
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
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readOrCreateLocalKey } from '../../src/gateway/keys/keyring.js';

const run = promisify(execFile);
let folder: string;
let dataDir: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'hostler-key-'));
  dataDir = path.join(folder, 'a', 'data');
  file = path.join(dataDir, 'key');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const modeOf = (name: string) => statSync(name).mode & 0o777;
const good = `hk_${'a'.repeat(43)}`;
const put = (text: string, mode = 0o600) => {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  writeFileSync(file, text);
  chmodSync(file, mode);
};

test('the first start makes a key that only its owner can read, and the next one finds it', () => {
  const first = readOrCreateLocalKey(dataDir);
  expect(first.isNew).toBe(true);
  expect(first.key).toMatch(/^hk_[A-Za-z0-9_-]{43}$/);
  expect([modeOf(dataDir), modeOf(file)]).toEqual([0o700, 0o600]);
  expect(readFileSync(file, 'utf8')).toBe(`${first.key}\n`);
  expect(readdirSync(dataDir)).toEqual(['key']);
  expect(readOrCreateLocalKey(dataDir)).toEqual({ key: first.key, isNew: false });
});

test('a key that the operator wrote is used, without surrounding blanks', () => {
  put(`  ${good}\r\n`);
  expect(readOrCreateLocalKey(dataDir)).toEqual({ key: good, isNew: false });
});

test.each(['640', '604', '660', '644', '601'])('mode %s is refused, with what to do', (mode) => {
  put(good, Number.parseInt(mode, 8));
  expect(() => readOrCreateLocalKey(dataDir)).toThrow('can be read by others');
  try {
    readOrCreateLocalKey(dataDir);
  } catch (error) {
    expect((error as { hint: string }).hint).toContain(`chmod 600 ${file}`);
    expect(JSON.stringify(error)).not.toContain(good);
  }
  expect(readFileSync(file, 'utf8')).toBe(good);
});

test.each([
  ['empty', ''],
  ['blank', ' \n'],
  ['short', 'hk_short'],
  ['two lines', `${good}\n${good}`],
  ['not valid in a header', `${good}\u00e9`],
  ['too large', 'a'.repeat(2_000)],
])('a file that is %s is refused and not changed', (_what, text) => {
  put(text);
  expect(() => readOrCreateLocalKey(dataDir)).toThrow(/holds no key|too large/);
  expect(readFileSync(file, 'utf8')).toBe(text);
});

test('a symbolic link is refused, also a broken one, and so is a folder', () => {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const elsewhere = path.join(folder, 'elsewhere');
  writeFileSync(elsewhere, good, { mode: 0o600 });
  symlinkSync(elsewhere, file);
  expect(() => readOrCreateLocalKey(dataDir)).toThrow('symbolic link');
  rmSync(file);
  symlinkSync(path.join(folder, 'nowhere'), file);
  expect(() => readOrCreateLocalKey(dataDir)).toThrow('symbolic link');
  rmSync(file);
  mkdirSync(file);
  expect(() => readOrCreateLocalKey(dataDir)).toThrow('is not a file');
});

test('a data directory that others may write to is refused before anything is created', () => {
  mkdirSync(dataDir, { recursive: true });
  chmodSync(dataDir, 0o777);
  expect(() => readOrCreateLocalKey(dataDir)).toThrow('other users may write');
  expect(readdirSync(dataDir)).toEqual([]);
});

test('simultaneous first starts create one key', { timeout: 60_000 }, async () => {
  const [rounds, starts] = [40, 4];
  const source = new URL('../../dist/gateway/keys/keyring.js', import.meta.url).href;
  const script = `import(${JSON.stringify(source)}).then(({ readOrCreateLocalKey }) => {
    const nap = new Int32Array(new SharedArrayBuffer(4));
    const made = [];
    for (let round = 0; round < ${rounds}; round++) {
      const at = ${Date.now() + 1_000} + round * 20;
      Atomics.wait(nap, 0, 0, Math.max(0, at - 2 - Date.now()));
      while (Date.now() < at);
      made.push(readOrCreateLocalKey(${JSON.stringify(folder)} + '/' + round));
    }
    console.log(JSON.stringify(made));
  });`;
  const outputs = await Promise.all(Array.from({ length: starts }, () => run(process.execPath, ['-e', script])));
  const made = outputs.map(({ stdout }) => JSON.parse(stdout) as { key: string; isNew: boolean }[]);
  for (let round = 0; round < rounds; round++) {
    const ofRound = made.map((each) => each[round]);
    expect(new Set(ofRound.map((each) => each?.key)).size).toBe(1);
    expect(ofRound.filter((each) => each?.isNew)).toHaveLength(1);
    expect(readdirSync(path.join(folder, `${round}`))).toEqual(['key']);
  }
});
