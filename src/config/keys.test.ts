import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { HostError } from '../kernel/errors.js';
import { digestOf, isClientKey, newKey, parseKeys } from './keys.js';

const digest = (key: string, encoding: 'hex' | 'base64url') => createHash('sha256').update(key).digest(encoding);
const hash = `sha256:${digest('k', 'hex')}`;

const nkeyOf = (char: string): string => `U${char.repeat(55)}`;

function read(input: unknown) {
  const problems: HostError[] = [];
  return { keys: parseKeys(input, (problem) => problems.push(problem)), problems };
}

test('hex, base64url and padded base64url give the same key', () => {
  const base64 = digest('k', 'base64url');
  for (const text of [hash, `sha256:${digest('k', 'hex').toUpperCase()}`, `sha256:${base64}`, `sha256:${base64}=`]) {
    const { keys, problems } = read({ ann: { hash: text, role: 'dev', expires: '2027-01-31' } });
    expect(problems).toEqual([]);
    expect(keys.get('ann')).toEqual({ isHost: false, digest: base64, role: 'dev', expiresAtMs: Date.UTC(2027, 0, 31) });
  }
});

test.each([
  ['2027-01-31T12:00:00Z', Date.UTC(2027, 0, 31, 12)],
  ['2027-01-31T12:00+02:00', Date.UTC(2027, 0, 31, 10)],
  ['2028-02-29', Date.UTC(2028, 1, 29)],
])('expires %s', (expires, atMs) => {
  expect(read({ a: { hash, expires } }).keys.get('a')?.expiresAtMs).toBe(atMs);
});

describe('an entry with a mistake grants no access; the error has the path and quotes no value', () => {
  const secret = 'hk_secret-secret-secret';
  test.each<[what: string, name: string, entry: unknown, field: string]>([
    ['no object', 'a', secret, 'keys.a'],
    ['no hash', 'a', {}, 'keys.a.hash'],
    ['the key itself', 'a', { hash: secret }, 'keys.a.hash'],
    ['the key after sha256:', 'a', { hash: `sha256:${secret}` }, 'keys.a.hash'],
    ['another kind of hash', 'a', { hash: `md5:${digest('k', 'hex')}` }, 'keys.a.hash'],
    ['a hash that is cut off', 'a', { hash: hash.slice(0, -1) }, 'keys.a.hash'],
    ['a role that is no text', 'a', { hash, role: 5 }, 'keys.a.role'],
    ['a blank role', 'a', { hash, role: '' }, 'keys.a.role'],
    ['a date that does not exist', 'a', { hash, expires: secret }, 'keys.a.expires'],
    ['the 31st of February', 'a', { hash, expires: '2027-02-31' }, 'keys.a.expires'],
    ['a time without a zone', 'a', { hash, expires: '2027-01-31T12:00:00' }, 'keys.a.expires'],
    ['an unknown member', 'a', { hash, roles: ['x'] }, 'keys.a.roles'],
    ['a name with a slash', 'a/b', { hash }, 'keys.a/b'],
    ['the reserved name', 'embedder', { hash }, 'keys.embedder'],
    ['the reserved name as a worker', 'a', { hash, worker: 'embedder' }, 'keys.a.worker'],
    ['a worker with a slash', 'a', { hash, worker: '../x' }, 'keys.a.worker'],
    ['a worker with a dot', 'a', { hash, worker: 'a.b' }, 'keys.a.worker'],
    ['an epoch with a dash', 'a', { hash, worker: 'a', epoch: 'x-y' }, 'keys.a.epoch'],
    ['an epoch without a worker', 'a', { hash, epoch: 'x' }, 'keys.a.worker'],
    ['a host that is false', 'a', { nkey: nkeyOf('A'), host: false }, 'keys.a.host'],
    ['a host without an nkey', 'a', { hash, host: true }, 'keys.a.nkey'],
    ['a host with a role', 'a', { nkey: nkeyOf('A'), host: true, role: 'low' }, 'keys.a.role'],
    ['a host that is a worker', 'a', { nkey: nkeyOf('A'), host: true, worker: 'w' }, 'keys.a.worker'],
    ['a private nkey', 'a', { worker: 'a', nkey: `SU${'A'.repeat(56)}` }, 'keys.a.nkey'],
    ['an nkey without a worker', 'a', { nkey: nkeyOf('A') }, 'keys.a.hash'],
    ['a mailbox', 'a', { hash, mailbox: 'a' }, 'keys.a.mailbox'],
    ['destinations', 'a', { hash, worker: 'a', destinations: ['host'] }, 'keys.a.destinations'],
  ])('%s', (_what, name, entry, field) => {
    const { keys, problems } = read({ [name]: entry, good: { hash: `sha256:${digest('other', 'hex')}` } });
    expect([...keys.keys()]).toEqual(['good']);
    expect(problems.map(({ code, details }) => [code, details.field])).toEqual([['invalid_spec', field]]);
    expect(JSON.stringify(problems)).not.toContain('secret');
    expect(problems[0]?.message.startsWith(`${field}: `)).toBe(true);
  });
});

test('two names for one key grant no access', () => {
  const { keys, problems } = read({
    a: { hash, role: 'admin' },
    b: { hash },
    c: { hash: `sha256:${digest('c', 'hex')}` },
  });
  expect([...keys.keys()]).toEqual(['c']);
  expect(problems.map(({ details }) => details.field)).toEqual(['keys.a.hash', 'keys.b.hash']);
});

test.each([undefined, null, [], 'x'])('%j is no table of keys', (input) => {
  expect(() => read(input)).toThrow('keys: must be an object');
});

test('the error for a member of an earlier version says what to write instead', () => {
  expect(read({ a: { hash, mailbox: 'a' } }).problems).toMatchObject([
    { message: 'keys.a.mailbox: is not used any more', hint: expect.stringContaining('"worker": "NAME"') },
  ]);
  expect(read({ a: { hash, destinations: ['host'] } }).problems[0]?.hint).toContain('remove it');
});

test('the key of a worker or a host is no key of a client', () => {
  const { keys, problems } = read({
    laptop: { hash, role: 'dev', worker: 'laptop', epoch: 'e1' },
    far: { worker: 'far', nkey: nkeyOf('A') },
    host: { host: true, nkey: nkeyOf('B') },
    client: { hash: `sha256:${digest('c', 'hex')}` },
  });
  expect(problems).toEqual([]);
  expect([...keys.values()].map(({ worker, isHost, nkey }) => [worker?.name, isHost, nkey])).toEqual([
    ['laptop', false, undefined],
    ['far', false, nkeyOf('A')],
    [undefined, true, nkeyOf('B')],
    [undefined, false, undefined],
  ]);
  expect(keys.get('laptop')?.worker?.epoch).toBe('e1');
  expect([...keys.values()].map(isClientKey)).toEqual([false, false, false, true]);
});

test('without an epoch in the entry each key gets one, the same at every start', () => {
  const epochOf = (entry: object) => read({ a: { worker: 'm', ...entry } }).keys.get('a')?.worker?.epoch;
  const other = `sha256:${digest('o', 'hex')}`;
  expect(epochOf({ hash })).toMatch(/^[A-Za-z0-9_]{10}$/);
  expect(epochOf({ hash })).toBe(epochOf({ hash: `sha256:${digest('k', 'base64url')}` }));
  expect(epochOf({ hash: other })).not.toBe(epochOf({ hash }));
  expect(epochOf({ nkey: nkeyOf('A') })).not.toBe(epochOf({ nkey: nkeyOf('B') }));
});

test('two keys of one worker grant access if role and epoch are equal, as in a rotation; otherwise neither grants access', () => {
  const [first, second] = [
    { hash, worker: 'm', epoch: 'e' },
    { hash: `sha256:${digest('o', 'hex')}`, worker: 'm', epoch: 'e' },
  ];
  expect(read({ a: first, b: second }).keys.size).toBe(2);
  for (const other of [
    { ...second, role: 'x' },
    { ...second, epoch: 'f' },
  ]) {
    const { keys, problems } = read({ a: first, b: other });
    expect([keys.size, problems.map(({ details }) => details.field)]).toEqual([0, ['keys.a.worker', 'keys.b.worker']]);
  }
});

test('each new key is different, and too long to guess', () => {
  const [one, other] = [newKey(), newKey()];
  expect(one).toMatch(/^hk_[A-Za-z0-9_-]{43}$/);
  expect(other).not.toBe(one);
});

test('the digest of a key equals the hash of its entry in any notation', () => {
  const digest = digestOf('hk_of-ann');
  const hex = Buffer.from(digest, 'base64url').toString('hex');
  for (const hash of [digest, hex]) {
    const keys = parseKeys({ ann: { hash: `sha256:${hash}` } }, (problem) => {
      throw problem;
    });
    expect(keys.get('ann')?.digest).toBe(digest);
  }
});
