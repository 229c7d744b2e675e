import {
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { LogTail } from '../relay/log-tail.js';
import { LogFile } from './log-file.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-log-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('R1 only its user can read the log of a host; it has a bound and one predecessor, and relays continue to read after a rotation', () => {
  const file = path.join(folder, 'host.log');
  const log = new LogFile(file, 40);
  const read: string[] = [];
  const tail = new LogTail(file, (line) => read.push(line));
  for (let n = 0; n < 9; n++) {
    log.write(`line number ${n}\n`);
    tail.read();
  }
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect([readFileSync(`${file}.1`, 'utf8').length <= 40, readFileSync(file, 'utf8')]).toEqual([
    true,
    'line number 8\n',
  ]);
  expect(read).toEqual(Array.from({ length: 9 }, (_, n) => `line number ${n}`));
  log.close();
  log.write('dropped');
  expect(new LogFile(path.join(folder, 'missing', 'host.log')).write('x')).toBeUndefined();
});

test('R1 after a rotation the other descriptors of the process write into the log too', () => {
  const file = path.join(folder, 'shared.log');
  // As the shell opens it for stdout and stderr of the host.
  const stderr = openSync(file, 'a');
  const log = new LogFile(file, 40);
  const tail: string[] = [];
  const reader = new LogTail(file, (line) => tail.push(line));
  for (const text of ['a line of thirty characters.. 1', 'a line of thirty characters.. 2']) {
    log.write(`${text}\n`);
    reader.read();
    writeSync(stderr, 'crash\n');
    reader.read();
  }
  expect(readFileSync(file, 'utf8')).toBe('a line of thirty characters.. 2\ncrash\n');
  expect(tail).toEqual(['a line of thirty characters.. 1', 'crash', 'a line of thirty characters.. 2', 'crash']);
  closeSync(stderr);
  rmSync(file);
  log.write('a line of thirty characters.. 3\n');
  expect(readFileSync(file, 'utf8')).toBe('a line of thirty characters.. 3\n');
  log.close();
});

test('R1 a log that another program has rotated is opened again, and its new file is kept', () => {
  const file = path.join(folder, 'rotated.log');
  const log = new LogFile(file, 40);
  log.write('a line of thirty characters.. 1\n');
  renameSync(file, `${file}.old`);
  writeFileSync(file, 'made by the other program\n');
  log.write('a line of thirty characters.. 2\n');
  expect(readFileSync(file, 'utf8')).toBe('made by the other program\na line of thirty characters.. 2\n');
  expect(readFileSync(`${file}.old`, 'utf8')).toBe('a line of thirty characters.. 1\n');
  log.close();
});

test('R1 a log that cannot be truncated is lost, and writing does not fail', () => {
  const file = path.join(folder, 'device.log');
  symlinkSync('/dev/null', file);
  const log = new LogFile(file, 40);
  for (let n = 0; n < 3; n++) expect(() => log.write('a line of thirty characters.. 1\n')).not.toThrow();
});
