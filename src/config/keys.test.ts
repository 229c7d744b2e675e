import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { HostError } from '../kernel/errors.js';
import { digestOf, isClientKey, newKey, parseKeys } from './keys.js';

const digest = (key: string, encoding: 'hex' | 'base64url') => createHash('sha256').update(key).digest(encoding);
const hash = `sha256:${digest('k', 'hex')}`;

function read(input: unknown) {
  const problems: HostError[] = [];
  return { keys: parseKeys(input, (problem) => problems.push(problem)), problems };
}

test('hex, base64url and padded base64url are one and the same', () => {
  const base64 = digest('k', 'base64url');
  for (const text of [hash, `sha256:${digest('k', 'hex').toUpperCase()}`, `sha256:${base64}`, `sha256:${base64}=`]) {
    const { keys, problems } = read({ ann: { hash: text, role: 'dev', expires: '2027-01-31' } });
    expect(problems).toEqual([]);
    expect(keys.get('ann')).toEqual({ digest: base64, role: 'dev', expiresAtMs: Date.UTC(2027, 0, 31) });
  }
});

test.each([
  ['2027-01-31T12:00:00Z', Date.UTC(2027, 0, 31, 12)],
  ['2027-01-31T12:00+02:00', Date.UTC(2027, 0, 31, 10)],
  ['2028-02-29', Date.UTC(2028, 1, 29)],
])('expires %s', (expires, atMs) => {
  expect(read({ a: { hash, expires } }).keys.get('a')?.expiresAtMs).toBe(atMs);
});

describe('a mistake is reported with its path and without its text, and grants no access', () => {
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
    ['a date that is none', 'a', { hash, expires: secret }, 'keys.a.expires'],
    ['the 31st of February', 'a', { hash, expires: '2027-02-31' }, 'keys.a.expires'],
    ['a time without a zone', 'a', { hash, expires: '2027-01-31T12:00:00' }, 'keys.a.expires'],
    ['an unknown member', 'a', { hash, roles: ['x'] }, 'keys.a.roles'],
    ['a name with a slash', 'a/b', { hash }, 'keys.a/b'],
    ['the reserved name', 'embedder', { hash }, 'keys.embedder'],
    ['the reserved name as a mailbox', 'a', { hash, mailbox: 'embedder' }, 'keys.a.mailbox'],
    ['a mailbox with a slash', 'a', { hash, mailbox: '../x' }, 'keys.a.mailbox'],
    ['destinations without a mailbox', 'a', { hash, destinations: ['host'] }, 'keys.a.mailbox'],
    [
      'a worker with the mailbox of hosts',
      'a',
      { hash, mailbox: 'host', destinations: ['host'] },
      'keys.a.destinations',
    ],
    [
      'no destinations of the mailbox of hosts',
      'a',
      { hash, mailbox: 'host', destinations: [] },
      'keys.a.destinations',
    ],
    ['a role for the mailbox of hosts', 'a', { hash, mailbox: 'host', role: 'low' }, 'keys.a.role'],
    ['a private nkey', 'a', { mailbox: 'a', nkey: `SU${'A'.repeat(56)}` }, 'keys.a.nkey'],
    ['an nkey without a mailbox', 'a', { nkey: `U${'A'.repeat(55)}` }, 'keys.a.hash'],
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

test('a key with a mailbox belongs to a worker or a host: it opens the broker, and not the gateway', () => {
  const nkey = `U${'A'.repeat(55)}`;
  const { keys, problems } = read({
    worker: { hash, role: 'dev', mailbox: 'worker' },
    host: { hash: `sha256:${digest('h', 'hex')}`, mailbox: 'host' },
    far: { mailbox: 'far', nkey, destinations: ['host', '*'] },
    client: { hash: `sha256:${digest('c', 'hex')}` },
  });
  expect(problems).toEqual([]);
  expect([...keys.values()].map(({ mail }) => mail)).toEqual([
    { mailbox: 'worker', destinations: ['host'], nkey: undefined },
    { mailbox: 'host', destinations: ['*'], nkey: undefined },
    { mailbox: 'far', destinations: ['host', '*'], nkey },
    undefined,
  ]);
  expect([...keys.values()].map(isClientKey)).toEqual([false, false, false, true]);
});

test('two keys of one mailbox grant no access when they differ; otherwise a key is being rotated', () => {
  const other = `sha256:${digest('o', 'hex')}`;
  expect(read({ a: { hash, mailbox: 'm' }, b: { hash: other, mailbox: 'm' } }).keys.size).toBe(2);
  const { keys, problems } = read({ a: { hash, mailbox: 'm' }, b: { hash: other, mailbox: 'm', role: 'x' } });
  expect([keys.size, problems.map(({ details }) => details.field)]).toEqual([0, ['keys.a.mailbox', 'keys.b.mailbox']]);
});

test('each new key is another, and too long to guess', () => {
  const [one, other] = [newKey(), newKey()];
  expect(one).toMatch(/^hk_[A-Za-z0-9_-]{43}$/);
  expect(other).not.toBe(one);
});

test('the digest of a key is the one that its entry has, however the hash is written there', () => {
  const digest = digestOf('hk_of-ann');
  const hex = Buffer.from(digest, 'base64url').toString('hex');
  for (const hash of [digest, hex]) {
    const keys = parseKeys({ ann: { hash: `sha256:${hash}` } }, (problem) => {
      throw problem;
    });
    expect(keys.get('ann')?.digest).toBe(digest);
  }
});
