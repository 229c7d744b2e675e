import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { StateFile } from '../../catalog/store/state-file.js';
import { copyState } from './copy-state.js';
import { DisabledItems } from './disabled-items.js';
import { runUp } from './run-up.js';

let from: string;
let to: string;
beforeEach(() => {
  from = mkdtempSync(path.join(os.tmpdir(), 'hostler-from-'));
  to = mkdtempSync(path.join(os.tmpdir(), 'hostler-to-'));
});
afterEach(() => {
  for (const folder of [from, to]) rmSync(folder, { recursive: true, force: true });
});

test('disabled items and the state of an open database are copied from the data directory', () => {
  writeFileSync(path.join(from, 'disabled.json'), '{"disabled":["one/write"]}');
  const fail = (error: unknown) => expect.unreachable(String(error));
  // Pins are in the same file. The row is still in the log of the open database.
  StateFile.open(from, fail).marks.set('one', 'stopped', true);
  copyState(from, to);
  const host = { setAllowlist: () => {}, stop: async () => {}, reload: async () => {} };
  expect(new DisabledItems(to, host as never).has('one', 'write')).toBe(true);
  expect(StateFile.open(to, fail).marks.has('one', 'stopped')).toBe(true);
});

test('a data directory without state gives a copy without state', () => {
  copyState(path.join(from, 'missing'), to);
  expect(readdirSync(to)).toEqual([]);
});

test.each(['disabled.json', 'state.db', 'state.db-wal'])('a state file that cannot be read is an error: %s', (name) => {
  mkdirSync(path.join(from, name));
  expect(() => copyState(from, to)).toThrow(`${name} cannot be read`);
});

test('a process that serves its client itself does not start if a state file cannot be read', async () => {
  mkdirSync(path.join(from, 'disabled.json'));
  const given: Record<string, string> = { config: path.join(from, 'hostler.json'), 'data-dir': from };
  const args = { positionals: [], afterDashes: [], all: () => [], has: (name: string) => name === 'stdio' };
  const load = () => Promise.reject(new Error('no broker'));
  const started = runUp({ ...args, text: (name) => given[name] }, load, 'sandbox');
  await expect(started).rejects.toThrow('disabled.json cannot be read');
});
