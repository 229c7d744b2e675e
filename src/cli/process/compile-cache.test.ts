import { createHash } from 'node:crypto';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Script } from 'node:vm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { keepParserSmall, withStartFlags } from '../../transports/http/parser-flag.js';
import { cacheFolder, finishCompileCache, runBundle } from './compile-cache.js';

let dataDir: string;
beforeEach(() => {
  dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-cache-'));
});
afterEach(() => rmSync(dataDir, { recursive: true, force: true }));

const cached = () => path.join(dataDir, 'compile-cache', 'test');

interface Growing {
  readonly grow: () => void;
}
const long = 'Math.random();'.repeat(2_000);

/** Runs a bundle with this body, as scripts/bundle.mjs writes it, and saves its code after `then`. */
function run(body: string, then: (exported: Growing) => void = () => {}): unknown {
  const text = `(function (exports, require, module, __filename, __dirname) {\n${body}\n})\n`;
  const file = path.join(dataDir, 'test.bundle.cjs');
  writeFileSync(file, `// ${createHash('sha256').update(text).digest('hex')}\n${text}`);
  const exported = runBundle(file, dataDir);
  then(exported as Growing);
  finishCompileCache();
  return exported;
}

test('E8 the compile cache is never below the working folder', () => {
  const HOME = '/own';
  const own = '/own/.local/share/hostler/compile-cache';
  expect(cacheFolder('/data', { HOME })).toBe('/data/compile-cache');
  expect(cacheFolder(undefined, { HOME, HOSTLER_DATA_DIR: '/other' })).toBe('/other/compile-cache');
  expect(cacheFolder('.hostler', { HOME })).toBe(own);
  expect(cacheFolder(undefined, { HOME, HOSTLER_DATA_DIR: '.hostler' })).toBe(own);
  expect(cacheFolder('.hostler', { HOSTLER_DATA_DIR: '.hostler' })).toBeUndefined();
});

test('the code is saved with access for its user only', () => {
  expect(run('exports.folder = __dirname')).toEqual({ folder: dataDir });
  expect([statSync(cached()).mode & 0o777, statSync(path.dirname(cached())).mode & 0o777]).toEqual([0o600, 0o700]);
});

test('the second run adds the code that the first one did not run, and later runs do not change the file', () => {
  const sizes: number[] = [];
  const files = new Set<number>();
  for (let runs = 0; runs < 4; runs++) {
    const { grow } = run(`exports.grow = () => {${long}}`, (exported) => runs > 0 && exported.grow()) as Growing;
    expect(typeof grow).toBe('function');
    sizes.push(statSync(cached()).size);
    files.add(statSync(cached()).ino);
  }
  expect(sizes[1]).toBeGreaterThan(sizes[0] as number);
  expect([sizes[2], sizes[3]]).toEqual([sizes[1], sizes[1]]);
  expect(files.size).toBe(2);
});

test('code of another build with the same length is not used', () => {
  expect(run('exports.number = 1')).toEqual({ number: 1 });
  expect(run('exports.number = 2')).toEqual({ number: 2 });
});

test.each([
  ['damaged', (bytes: Buffer) => bytes.fill(7, bytes.length >> 1)],
  ['cut off', (bytes: Buffer) => bytes.subarray(0, bytes.length / 2)],
  ['empty', () => Buffer.alloc(0)],
])('code in a %s file is replaced', (_what, spoil) => {
  run('exports.number = 1');
  const good = readFileSync(cached());
  writeFileSync(cached(), spoil(Buffer.from(good)));
  expect(run('exports.number = 1')).toEqual({ number: 1 });
  expect(readFileSync(cached()).length).toBe(good.length);
});

test('code that others can write to is not used, and no code is written to such a place', () => {
  run('exports.number = 1');
  const { ino } = statSync(cached());
  chmodSync(cached(), 0o666);
  run('exports.number = 1');
  const replaced = statSync(cached());
  expect([replaced.ino === ino, replaced.mode & 0o777]).toEqual([false, 0o600]);
  rmSync(cached());
  chmodSync(path.dirname(cached()), 0o777);
  run('exports.number = 1');
  expect(readdirSync(path.dirname(cached()))).toEqual([]);
});

test('the code is saved for the flags of a start, even after the flags for the parser of undici were set', () => {
  keepParserSmall();
  run('exports.number = 1');
  const cachedData = readFileSync(cached()).subarray(32, -1);
  const source = readFileSync(path.join(dataDir, 'test.bundle.cjs'), 'latin1');
  // The source differs but has the same length: for an equal source V8 would ignore the cache and use its script in memory.
  const script = withStartFlags(() => new Script(source.replace('= 1', '= 2'), { cachedData }));
  expect(script.cachedDataRejected).toBe(false);
});

test('after the flags of V8 have changed nothing is written, even if more was compiled', () => {
  const { grow } = run(`exports.grow = () => {${long}}`) as Growing;
  rmSync(cached());
  grow();
  finishCompileCache();
  expect(readdirSync(path.dirname(cached()))).toEqual([]);
});
