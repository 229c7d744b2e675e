import { mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ReserveFile } from './reserve-file.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-reserve-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const file = path.join(folder, 'reserve');
const bytes = 3 * 1024 * 1024 + 5;

test('takes real room, is given up and made again', () => {
  const reserve = new ReserveFile(file, bytes);
  expect(reserve.isThere).toBe(false);
  expect(reserve.make()).toBe(true);
  const { size, blocks, mode, ino } = statSync(file);
  expect([size, mode & 0o777]).toEqual([bytes, 0o600]);
  expect(blocks * 512).toBeGreaterThanOrEqual(bytes);
  // What is there is not written again.
  expect([reserve.make(), statSync(file).ino]).toEqual([true, ino]);
  reserve.giveUp();
  reserve.giveUp();
  expect(reserve.isThere).toBe(false);
  expect(reserve.make()).toBe(true);
});

test('a file that only looks as long, or is cut short, is made anew', () => {
  const reserve = new ReserveFile(file, bytes);
  reserve.giveUp();
  writeFileSync(file, '');
  truncateSync(file, bytes);
  expect([reserve.isThere, reserve.make(), reserve.isThere]).toEqual([false, true, true]);
  truncateSync(file, bytes - 1);
  expect([reserve.isThere, reserve.make(), reserve.isThere]).toEqual([false, true, true]);
});

test('is not made where it would leave too little', () => {
  expect(new ReserveFile(path.join(folder, 'huge'), 2 ** 52).make()).toBe(false);
});
