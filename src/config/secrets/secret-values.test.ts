import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { deferred } from '../../kernel/deferred.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { expand, hasReference, literal, referencesIn } from './references.js';
import type { CommandResult, CommandRun } from './run-command.js';
import { SecretValues } from './secret-values.js';
import { secretsEntry } from './secrets-settings.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-secrets-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const file = path.join(folder, 'token');
const ofFile = `\${file:${file}}`;
const ofCommand = `\${exec:vault}`;
const { exec } = secretsEntry.parse({ exec: { vault: { argv: ['vault', 'read'], env: ['VAULT_ADDR'], ttl: '1m' } } });

let clock: FakeClock;
let known: Set<string>;
let runs: CommandRun[];
let answer: (run: CommandRun) => Promise<CommandResult>;
let secrets: SecretValues;
beforeEach(() => {
  clock = new FakeClock();
  known = new Set();
  runs = [];
  answer = () => Promise.resolve({ text: `value-${runs.length}` });
  secrets = new SecretValues({
    clock,
    redactor: { know: (value) => known.add(value), forget: (value) => known.delete(value) },
    environmentOf: (names) => Object.fromEntries(names.map((name) => [name, `the ${name}`])),
    run: (run) => {
      runs.push(run);
      return answer(run);
    },
  });
  secrets.configure(exec);
});

describe('a late text', () => {
  test.each([
    ['a reference', `\${file:/etc/passwd}`],
    ['an escape', `\${text:$}`],
    ['half of a reference', `a\${`],
    ['nested references', `\${\${\${exec:x}`],
  ])('keeps a value that was filled in earlier, even if it is %s', (_what, value) => {
    const late = `${literal(value)}:\${exec:vault}`;
    expect(referencesIn(late)).toEqual([{ kind: 'exec', name: 'vault' }]);
    expect(expand(late, () => `\${file:never}`)).toBe(`${value}:\${file:never}`);
  });

  test('has a reference; a plain text has none', () => {
    expect([hasReference('$HOME {file:x}'), hasReference(ofCommand)]).toEqual([false, true]);
  });
});

describe('a file', () => {
  test('is read for each use, without the newline at its end', async () => {
    for (const text of ['first\n', 'second\r\n', 'third']) {
      writeFileSync(file, text);
      expect(await secrets.resolve(`Bearer ${ofFile}`, 'f')).toBe(`Bearer ${text.trim()}`);
    }
    expect([...known]).toEqual(['first', 'second', 'third']);
  });

  test.each([
    ['is missing', path.join(folder, 'none'), 'cannot be read (ENOENT)'],
    ['is a folder', folder, 'is not a file'],
    ['is too large', path.join(folder, 'large'), 'is larger than 64 KiB'],
  ])('that %s fails with field and path', async (_what, name, why) => {
    writeFileSync(path.join(folder, 'large'), Buffer.alloc(64 * 1024 + 1, 'x'));
    mkdirSync(folder, { recursive: true });
    await expect(secrets.resolve(`\${file:${name}}`, 'mcpServers.a.env.TOKEN')).rejects.toMatchObject({
      code: 'invalid_spec',
      message: `mcpServers.a.env.TOKEN: ${name} ${why}`,
      details: { field: 'mcpServers.a.env.TOKEN' },
    });
  });
});

describe('a command', () => {
  test('runs with its variables, once for all uses until its result expires', async () => {
    const all = await Promise.all([secrets.resolve(ofCommand, 'a'), secrets.resolve(`x${ofCommand}`, 'b')]);
    clock.advance(59_999);
    expect([...all, await secrets.resolve(ofCommand, 'c')]).toEqual(['value-1', 'xvalue-1', 'value-1']);
    expect(runs).toMatchObject([{ argv: ['vault', 'read'], env: { VAULT_ADDR: 'the VAULT_ADDR' } }]);
    clock.advance(1);
    expect(await secrets.resolve(ofCommand, 'd')).toBe('value-2');
  });

  test('runs again after a refusal, and after a change of its definition', async () => {
    await secrets.resolve(ofCommand, 'a');
    expect(await secrets.resolve(ofCommand, 'a', { isFresh: true })).toBe('value-2');
    secrets.configure(secretsEntry.parse({ exec: { vault: { argv: ['vault', 'other'], ttl: '1m' } } }).exec);
    expect(await secrets.resolve(ofCommand, 'a')).toBe('value-3');
    secrets.configure(secretsEntry.parse({ exec: { vault: { argv: ['vault', 'other'], ttl: '1m' } } }).exec);
    expect(await secrets.resolve(ofCommand, 'a')).toBe('value-3');
  });

  test('the output of a run that began before a change of its definition is not kept', async () => {
    const old = deferred();
    answer = () => old.promise.then(() => ({ text: 'old-value' }));
    const first = secrets.resolve(ofCommand, 'a');
    answer = () => Promise.resolve({ text: 'new-value' });
    secrets.configure(secretsEntry.parse({ exec: { vault: { argv: ['vault', 'other'], ttl: '1m' } } }).exec);
    const second = secrets.resolve(ofCommand, 'a');
    old.resolve();
    expect(await Promise.all([first, second])).toEqual(['old-value', 'new-value']);
    expect(await secrets.resolve(ofCommand, 'a')).toBe('new-value');
    expect([runs.length, [...known].sort()]).toEqual([2, ['new-value', 'old-value']]);
  });

  test('at most four run at a time', async () => {
    const held = deferred();
    answer = () => held.promise.then(() => ({ text: 'done' }));
    const names = Array.from({ length: 10 }, (_, i) => `c${i}`);
    secrets.configure(secretsEntry.parse({ exec: Object.fromEntries(names.map((n) => [n, { argv: [n] }])) }).exec);
    const all = names.map((name) => secrets.resolve(`\${exec:${name}}`, 'f'));
    expect(runs).toHaveLength(4);
    held.resolve();
    expect(await Promise.all(all)).toEqual(names.map(() => 'done'));
    expect(runs).toHaveLength(10);
  });

  test('a failure names the command and the field, and no value', async () => {
    answer = () => Promise.resolve({ why: 'ended with exit code 1' });
    await expect(secrets.resolve(`s3cret-prefix${ofCommand}`, 'mcpServers.a.headers.X')).rejects.toMatchObject({
      message: `mcpServers.a.headers.X: the command 'vault' ended with exit code 1`,
      hint: 'run the command of secrets.exec.vault by hand',
    });
    await expect(secrets.resolve(`\${exec:toString}`, 'f')).rejects.toThrow('is not in secrets.exec');
  });

  test('X15 each value is redacted from its first use on, and only the newest values are remembered', async () => {
    for (let i = 0; i < 6; i++) await secrets.resolve(ofCommand, 'a', { isFresh: true });
    expect([...known].sort()).toEqual(['value-3', 'value-4', 'value-5', 'value-6']);
  });
});

test('the last known values can be read without waiting; an equal new value does not change the revision', async () => {
  expect(secrets.peek(ofCommand)).toBeUndefined();
  await secrets.resolve(ofCommand, 'a');
  const { revision } = secrets;
  expect(secrets.peek(`Bearer ${ofCommand}`)).toBe('Bearer value-1');
  answer = () => Promise.resolve({ text: 'value-1' });
  await secrets.resolve(ofCommand, 'a', { isFresh: true });
  expect(secrets.revision).toBe(revision);
});

test.each([
  ['no program', { exec: { a: { argv: [] } } }],
  ['a shell line', { exec: { a: { argv: 'op read x' } } }],
  ['a NUL', { exec: { a: { argv: ['a\0b'] } } }],
  ['no time', { exec: { a: { argv: ['a'], ttl: 'soon' } } }],
  ['an unknown key', { exec: { a: { argv: ['a'], shell: true } } }],
  ['a name that a reference cannot have', { exec: { 'a}': { argv: ['a'] } } }],
])('settings with %s are refused', (_what, settings) => {
  expect(secretsEntry.safeParse(settings).success).toBe(false);
});
