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
const hashOf = (made: string) => `sha256:${createHash('sha256').update(made).digest('hex')}`;
const text = () => readFileSync(place.config, 'utf8');
const keys = () => (parseConfigText(text(), 'x') as { keys?: Record<string, Record<string, unknown>> }).keys;

test.each([
  [['ad', 'ann'], "'ad' is not one of add, list, revoke, nats"],
  [['revoke'], 'the name of the key is missing'],
])('wrong usage is reported even without a configuration: key %s', async (words, said) => {
  rmSync(place.config);
  const env = { HOME: place.folder, XDG_CONFIG_HOME: '', HOSTLER_DATA_DIR: '' };
  const { code, stderr } = await new Running(['key', ...words], env, place.folder).closed;
  expect([code, stderr]).toEqual([2, expect.stringContaining(said)]);
});

describe('add', () => {
  test('shows the key once, stores its hash, and keeps every comment in its place', async () => {
    const { code, stdout } = await key(
      'add',
      'ann',
      '--role',
      'reader',
      '--worker',
      'laptop',
      '--expires',
      '2030-01-31',
    );
    const made = stdout.trim();
    expect([code, made]).toEqual([0, expect.stringMatching(/^hk_[A-Za-z0-9_-]{43}$/)]);
    expect(keys()).toEqual({
      ann: {
        hash: hashOf(made),
        role: 'reader',
        expires: '2030-01-31',
        worker: 'laptop',
        epoch: expect.stringMatching(/^[0-9a-f]{16}$/),
      },
    });
    expect(text()).toContain('// what the team uses');
    expect(text()).toContain('// who may what');
    expect(text()).not.toContain(made);
  });

  test('keys of one worker share its epoch; a name that is added again gets another epoch', async () => {
    const worker = ['--worker', 'laptop', '--role', 'reader'];
    await key('add', 'old', ...worker);
    await key('add', 'new', ...worker);
    const first = keys()?.old?.epoch;
    expect([typeof first, keys()?.new?.epoch]).toEqual(['string', first]);
    await key('revoke', 'old');
    await key('add', 'third', ...worker);
    expect(keys()?.third?.epoch).toBe(first);
    await key('revoke', 'new');
    await key('revoke', 'third');
    await key('add', 'later', ...worker);
    expect(keys()?.later?.epoch).not.toBe(first);
  });

  test('a key without an epoch in its entry shares the epoch from its hash', async () => {
    place.configure({ mcpServers: {}, keys: { old: { worker: 'laptop', hash: hashOf('k') } }, unlistedRole: 'allow' });
    expect((await key('add', 'new', '--worker', 'laptop', '--no-role')).code).toBe(0);
    expect((await key('list')).stdout).toMatch(/^old .*laptop[\s\S]*^new .*laptop/m);
  });

  test('a host and a worker of NATS have their public half in the configuration; nats-server is named', async () => {
    const host = await key('add', 'here', '--host');
    const worker = await key('add', 'far', '--worker', 'far', '--role', 'reader', '--nats');
    for (const { stdout, stderr } of [host, worker]) {
      expect(stdout).toMatch(/^SU[A-Z2-7]{56}\n$/);
      expect(stderr).toContain('nats-server refuses this key until it has the new configuration: hostler key nats');
      expect(text()).not.toContain(stdout.trim());
    }
    const nkey = expect.stringMatching(/^U[A-Z2-7]{55}$/);
    expect(keys()).toEqual({
      here: { nkey, host: true },
      far: { nkey, role: 'reader', worker: 'far', epoch: expect.any(String) },
    });
  });

  test('writes the key into a new file for its user only, never over an existing file', async () => {
    const file = path.join(place.folder, 'worker.key');
    const { code, stdout } = await key('add', 'ann', '--key-file', file);
    expect([code, stdout, statSync(file).mode & 0o777]).toEqual([0, '', 0o600]);
    expect(readFileSync(file, 'utf8')).toMatch(/^hk_[\w-]{43}\n$/);
    const again = await key('add', 'bob', '--key-file', file);
    expect([again.code, Object.keys(keys() ?? {})]).toEqual([2, ['ann']]);
    expect(again.stderr).toContain('give the name of a new file');
  });

  test.each<[string, string[], RegExp]>([
    ['a name in use', ['ann'], /the key 'ann' already exists/],
    ['an invalid name', ['a/b'], /is not a valid key name/],
    ['an invalid date', ['bob', '--expires', 'soon'], /keys\.bob\.expires/],
    ['an invalid worker', ['bob', '--worker', '../x', '--role', 'reader'], /keys\.bob\.worker/],
    ['a role that is not listed', ['bob', '--role', 'raeder'], /role 'raeder' is not listed[\s\S]*listed are reader/],
    ['a worker without a role', ['bob', '--worker', 'bob'], /a worker needs a role[\s\S]*--no-role/],
    ['a role and no role', ['bob', '--worker', 'bob', '--role', 'reader', '--no-role'], /exclude each other/],
    ['a host with a role', ['bob', '--host', '--role', 'reader'], /exclude each other/],
    ['a client on NATS', ['bob', '--nats'], /--nats needs --worker or --host/],
    ['a worker that is a host', ['bob', '--worker', 'bob', '--host'], /--host and --worker/],
    ['no name', [], /the name of the key is missing/],
  ])('%s: reported, and nothing is written', async (_, args, said) => {
    await key('add', 'ann');
    const before = text();
    const { code, stderr, stdout } = await key('add', ...args);
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringMatching(said)]);
    expect(text()).toBe(before);
  });

  test('a key that would make another one invalid is not written', async () => {
    place.configure({ mcpServers: {}, roles: { reader: { allow: [] }, writer: { allow: [] } } });
    await key('add', 'ann', '--worker', 'ann', '--role', 'reader');
    const before = text();
    const file = path.join(place.folder, 'second.key');
    const { code, stderr } = await key('add', 'bob', '--worker', 'ann', '--role', 'writer', '--key-file', file);
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('keys.bob.worker: is also named by a key with another role or epoch'),
    ]);
    expect([text(), existsSync(file)]).toEqual([before, false]);
  });

  test('an unlisted role is accepted where the configuration allows it', async () => {
    place.configure({ mcpServers: {}, unlistedRole: 'allow' });
    expect((await key('add', 'ann', '--role', 'any')).code).toBe(0);
  });

  test('problems of other keys do not prevent adding one', async () => {
    place.configure({ mcpServers: {}, keys: { odd: { hash: 'none' } } });
    expect((await key('add', 'ann')).code).toBe(0);
    expect(Object.keys(keys() ?? {})).toEqual(['odd', 'ann']);
  });

  test('of several added at once none is lost, and of two with the same name one is refused', async () => {
    const names = ['a', 'b', 'a'];
    const ended = await Promise.all(names.map((name) => key('add', name)));
    expect(ended.map(({ code }) => code).sort()).toEqual([0, 0, 2]);
    expect(Object.keys(keys() ?? {}).sort()).toEqual(['a', 'b']);
  });

  test('a key that could not be added is written to no file', async () => {
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

test('list shows what each key opens, and no hash', async () => {
  await key('add', 'ann', '--role', 'reader', '--worker', 'laptop');
  await key('add', 'bob', '--expires', '2020-01-31');
  const shown = await key('list');
  expect(shown.stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['NAME', 'OPENS', 'ROLE', 'WORKER', 'EXPIRES'],
    ['ann', 'broker', 'reader', 'laptop', 'never'],
    ['bob', 'gateway', '-', '-', '2020-01-31T00:00:00.000Z (expired)'],
    [''],
  ]);
  expect(shown.stdout).not.toContain('sha256');
  const { stdout } = await key('list', '--json');
  expect(JSON.parse(stdout)).toMatchObject({
    v: 1,
    keys: [
      { name: 'ann', opens: 'broker', worker: 'laptop', isExpired: false },
      { name: 'bob', opens: 'gateway', role: null, isExpired: true },
    ],
  });
});

test('nats prints both keys of a worker and no expired one; revoke explains what nats-server needs', async () => {
  const nkey = (letter: string) => `U${letter.repeat(55)}`;
  const entry = (letter: string, expires?: string) => ({
    ...{ worker: 'ann', epoch: 'e', nkey: nkey(letter), expires },
  });
  const far = { host: true, nkey: nkey('D'), expires: '2020-01-31' };
  place.configure(
    JSON.stringify({ keys: { a: entry('A'), b: entry('B', '2020-01-31'), c: entry('C', '2999-01-31'), far } }),
  );
  const { stdout } = await key('nats');
  expect(['A', 'B', 'C', 'D'].filter((letter) => stdout.includes(nkey(letter)))).toEqual(['A', 'C']);
  const { code, stderr } = await key('revoke', 'a');
  expect([code, stderr]).toEqual([0, expect.stringContaining('hostler key nats')]);
});

test('nats has the TLS, sync and size options, writes a file and reloads nats-server alone', async () => {
  const out = path.join(place.folder, 'nats.conf');
  const tls = ['--tls-cert', '/etc/nats/cert.pem', '--tls-key', '/etc/nats/key.pem'];
  const made = await key('nats', ...tls, '--sync', '--max-store', '5', '--store-dir', '/data/nats', '--output', out);
  expect([made.code, made.stdout]).toEqual([0, '']);
  const written = readFileSync(out, 'utf8');
  for (const part of ['"/etc/nats/cert.pem"', '"/etc/nats/key.pem"', '"/data/nats"', 'sync_interval', '5242880'])
    expect(written).toContain(part);
  for (const [args, said] of [
    [['--tls-cert', 'x'], /--tls-cert and --tls-key belong together/],
    [['--max-store', '1G'], /--max-store must be a number of MiB/],
    [['--reload', 'all'], /--reload must be the process id/],
  ] as const) {
    const { code, stderr } = await key('nats', ...args);
    expect([code, stderr]).toEqual([2, expect.stringMatching(said)]);
  }
  // SIGHUP would end this process.
  const { code, stderr } = await key('nats', '--reload', String(process.pid));
  expect([code, stderr]).toEqual([1, expect.stringContaining('not nats-server')]);
});

test('revoke removes a key, also an invalid one; an unknown key is reported', async () => {
  await key('add', 'ann');
  expect((await key('revoke', 'ann')).code).toBe(0);
  expect(keys()).toEqual({});
  place.configure('{"keys":{"odd":{"hash":"nonsense"}}}');
  expect((await key('revoke', 'odd')).code).toBe(0);
  const { code, stderr } = await key('revoke', 'nobody');
  expect([code, stderr]).toEqual([2, expect.stringContaining("there is no key 'nobody'")]);
});
