/** `hostler key` as processes, on a configuration that a person wrote. */
import { createHash } from 'node:crypto';
import { existsSync, linkSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { parseConfigText } from '../../src/config/config-file.js';
import { Running, Workplace } from './hostler-process.js';

const place = new Workplace();
const written = `{
  // what the team uses
  "mcpServers": {},
  "roles": { "reader": { "allow": ["files/read"] } }, // who may what
}
`;
beforeEach(() => place.configure(written));
afterAll(() => place.remove());

async function key(...args: string[]) {
  const running = new Running(['key', ...args, '--config', place.config]);
  running.child.stdin?.end();
  return running.closed;
}
const text = () => readFileSync(place.config, 'utf8');
const keys = () => (parseConfigText(text(), 'x') as { keys?: Record<string, Record<string, unknown>> }).keys;

describe('add', () => {
  test('shows the key once, keeps its hash, and leaves every comment where it was', async () => {
    const { code, stdout } = await key('add', 'ann', '--role', 'reader', '--worker', '--expires', '2030-01-31');
    const made = stdout.trim();
    expect([code, made]).toEqual([0, expect.stringMatching(/^hk_[A-Za-z0-9_-]{43}$/)]);
    expect(keys()).toEqual({
      ann: {
        hash: `sha256:${createHash('sha256').update(made).digest('hex')}`,
        role: 'reader',
        expires: '2030-01-31',
        mailbox: 'ann',
      },
    });
    expect(text()).toContain('// what the team uses');
    expect(text()).toContain('// who may what');
    expect(text()).not.toContain(made);
  });

  test('a host of another machine may send to every mailbox; a NATS pair has its public half in the configuration', async () => {
    await key('add', 'here', '--host');
    const { stdout } = await key('add', 'far', '--host', '--mailbox', 'far', '--nats');
    expect(stdout).toMatch(/^SU[A-Z2-7]{56}\n$/);
    expect(keys()).toMatchObject({
      here: { mailbox: 'host' },
      far: { mailbox: 'far', destinations: ['*'], nkey: expect.stringMatching(/^U[A-Z2-7]{55}$/) },
    });
    expect(text()).not.toContain(stdout.trim());
  });

  test('into a new file for its user alone, never over an old one', async () => {
    const file = path.join(place.folder, 'worker.key');
    const { code, stdout } = await key('add', 'ann', '--key-file', file);
    expect([code, stdout, statSync(file).mode & 0o777]).toEqual([0, '', 0o600]);
    expect(readFileSync(file, 'utf8')).toMatch(/^hk_[\w-]{43}\n$/);
    const again = await key('add', 'bob', '--key-file', file);
    expect([again.code, Object.keys(keys() ?? {})]).toEqual([2, ['ann']]);
    expect(again.stderr).toContain('give the name of a new file');
  });

  test.each<[string, string[], RegExp]>([
    ['a name that is taken', ['ann'], /the key 'ann' already exists/],
    ['a name that is none', ['a/b'], /is not a valid key name/],
    ['a date that is none', ['bob', '--expires', 'soon'], /keys\.bob\.expires/],
    ['a mailbox that is none', ['bob', '--mailbox', '../x'], /keys\.bob\.mailbox/],
    [
      'a worker called like the mailbox of hosts',
      ['host', '--role', 'low', '--worker'],
      /'host' is reserved for hosts/,
    ],
    ['a worker with the mailbox of hosts', ['bob', '--mailbox', 'host'], /'host' is reserved for hosts/],
    ['a worker that is a host', ['bob', '--worker', '--host'], /--host and --worker/],
    ['no name', [], /the name of the key is missing/],
  ])('%s: reported, and nothing is written', async (_, args, said) => {
    await key('add', 'ann');
    const before = text();
    const { code, stderr, stdout } = await key('add', ...args);
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringMatching(said)]);
    expect(text()).toBe(before);
  });

  test('a key that would lock out another key is reported, and nothing is written', async () => {
    await key('add', 'ann', '--worker', '--role', 'reader');
    const before = text();
    const file = path.join(place.folder, 'second.key');
    const { code, stderr } = await key('add', 'bob', '--worker', '--mailbox', 'ann', '--key-file', file);
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('keys.bob.mailbox: is also used by a key with other rights'),
    ]);
    expect([text(), existsSync(file)]).toEqual([before, false]);
    // With the same rights it is how a key is changed without a gap.
    const { code: again } = await key('add', 'bob', '--worker', '--mailbox', 'ann', '--role', 'reader');
    expect([again, Object.keys(keys() ?? {})]).toEqual([0, ['ann', 'bob']]);
  });

  test('problems of other keys do not prevent adding one', async () => {
    place.configure({ mcpServers: {}, keys: { odd: { hash: 'none' } } });
    expect((await key('add', 'ann')).code).toBe(0);
    expect(Object.keys(keys() ?? {})).toEqual(['odd', 'ann']);
  });

  test('of several at once none is lost, and of two with one name one is refused', async () => {
    const names = ['a', 'b', 'a'];
    const ended = await Promise.all(names.map((name) => key('add', name)));
    expect(ended.map(({ code }) => code).sort()).toEqual([0, 0, 2]);
    expect(Object.keys(keys() ?? {}).sort()).toEqual(['a', 'b']);
  });

  test('a key that could not be added is in no file', async () => {
    linkSync(place.config, `${place.config}.second`);
    const file = path.join(place.folder, 'unused.key');
    const { code, stderr } = await key('add', 'ann', '--key-file', file);
    rmSync(`${place.config}.second`);
    expect([code, stderr, existsSync(file)]).toEqual([1, expect.stringContaining('hard links'), false]);
  });

  test('a configuration that cannot be read is not touched', async () => {
    writeFileSync(place.config, '{ "keys": ');
    const { code } = await key('add', 'ann');
    expect([code, text()]).toEqual([1, '{ "keys": ']);
  });
});

test('list shows what each opens, and no hash', async () => {
  await key('add', 'ann', '--role', 'reader', '--worker');
  await key('add', 'bob', '--expires', '2020-01-31');
  const shown = await key('list');
  expect(shown.stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['NAME', 'OPENS', 'ROLE', 'MAILBOX', 'EXPIRES'],
    ['ann', 'broker', 'reader', 'ann', 'never'],
    ['bob', 'gateway', '-', '-', '2020-01-31T00:00:00.000Z (expired)'],
    [''],
  ]);
  expect(shown.stdout).not.toContain('sha256');
  const { stdout } = await key('list', '--json');
  expect(JSON.parse(stdout)).toMatchObject([
    { name: 'ann', opens: 'broker', mailbox: 'ann', isExpired: false },
    { name: 'bob', opens: 'gateway', role: null, isExpired: true },
  ]);
});

test('nats prints both keys of a mailbox and no expired one; revoke explains what nats-server needs', async () => {
  const nkey = (letter: string) => `U${letter.repeat(55)}`;
  const entry = (letter: string, expires?: string) => ({ mailbox: 'ann', nkey: nkey(letter), expires });
  const far = { mailbox: 'far', nkey: nkey('D'), destinations: ['*'], expires: '2020-01-31' };
  place.configure(
    JSON.stringify({ keys: { a: entry('A'), b: entry('B', '2020-01-31'), c: entry('C', '2999-01-31'), far } }),
  );
  const { stdout } = await key('nats');
  expect(['A', 'B', 'C', 'D'].filter((letter) => stdout.includes(nkey(letter)))).toEqual(['A', 'C']);
  const { code, stderr } = await key('revoke', 'a');
  expect([code, stderr]).toEqual([0, expect.stringContaining('hostler key nats')]);
});

test('revoke removes it, also an unusable one; a missing key is reported', async () => {
  await key('add', 'ann');
  expect((await key('revoke', 'ann')).code).toBe(0);
  expect(keys()).toEqual({});
  place.configure('{"keys":{"odd":{"hash":"nonsense"}}}');
  expect((await key('revoke', 'odd')).code).toBe(0);
  const { code, stderr } = await key('revoke', 'nobody');
  expect([code, stderr]).toEqual([2, expect.stringContaining("there is no key 'nobody'")]);
});
