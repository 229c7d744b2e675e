import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { digestOf, parseKeys } from '../config/keys.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Identities } from './identities.js';

const nkey = `U${'A'.repeat(55)}`;
const hashOf = (key: string) => `sha256:${createHash('sha256').update(key).digest('hex')}`;
const keysOf = (keys: unknown) =>
  parseKeys(keys, (problem) => {
    throw problem;
  });

test('a worker is found by the digest of its key and by its name; a client and a host are not', () => {
  const identities = new Identities(
    keysOf({
      a: { hash: hashOf('ka'), worker: 'w', epoch: 'e', role: 'dev' },
      b: { nkey, worker: 'w', epoch: 'e', role: 'dev' },
      client: { hash: hashOf('kc') },
      host: { nkey: `U${'B'.repeat(55)}`, host: true },
    }),
    new FakeClock(),
  );
  const worker = { name: 'w', epoch: 'e', role: 'dev' };
  expect(identities.ofDigest(digestOf('ka'))).toEqual(worker);
  expect(identities.current('w', 'e')).toEqual(worker);
  expect(identities.current('w', 'other')).toBeUndefined();
  expect(identities.ofDigest(digestOf('kc'))).toBeUndefined();
  expect(identities.workers()).toEqual([worker]);
});

test('an expired key identifies no worker, while another key of that worker still does', () => {
  const clock = new FakeClock();
  const inOneHour = new Date(clock.date().getTime() + 3_600_000).toISOString();
  const identities = new Identities(
    keysOf({
      old: { hash: hashOf('old'), worker: 'w', epoch: 'e', expires: inOneHour },
      new: { hash: hashOf('new'), worker: 'w', epoch: 'e' },
    }),
    clock,
  );
  expect(identities.ofDigest(digestOf('old'))).toBeDefined();
  clock.advance(3_600_001);
  expect(identities.ofDigest(digestOf('old'))).toBeUndefined();
  expect(identities.ofDigest(digestOf('new'))).toBeDefined();
  expect(identities.current('w', 'e')).toBeDefined();
});

test('a change names the workers that were removed or have another epoch, and listeners are notified', () => {
  const row = (epoch: string) => ({ hash: hashOf(`k-${epoch}`), worker: 'w', epoch });
  const identities = new Identities(
    keysOf({ a: row('e1'), x: { hash: hashOf('x'), worker: 'x', epoch: 'e' } }),
    new FakeClock(),
  );
  let heard = 0;
  const off = identities.onChange(() => heard++);
  const other = { x: { hash: hashOf('x2'), worker: 'x', epoch: 'e' } };
  expect(identities.replace(keysOf({ a: row('e2'), ...other })).revoked).toEqual([{ name: 'w', keptEpoch: 'e2' }]);
  expect(identities.ofDigest(digestOf('k-e1'))).toBeUndefined();
  expect(identities.replace(keysOf(other)).revoked).toEqual([{ name: 'w', keptEpoch: undefined }]);
  const promoted = { x: { ...other.x, role: 'boss' } };
  expect(identities.replace(keysOf(promoted))).toEqual({ revoked: [], otherRole: new Set(['x']) });
  expect(heard).toBe(3);
  off();
  identities.replace(keysOf({}));
  expect(heard).toBe(3);
});

test('a key with a mistake revokes no worker: what the worker owns is kept until the mistake is corrected', () => {
  const of = (epoch: string, role?: string) => ({ hash: hashOf(`k-${epoch}-${role}`), worker: 'w', epoch, role });
  const faulty = parseKeys({ a: of('e1', 'dev'), b: of('e1', 'admin') }, () => {});
  const identities = new Identities(keysOf({ a: of('e1', 'dev') }), new FakeClock());
  expect(identities.replace(faulty)).toEqual({ revoked: [], otherRole: new Set() });
  expect(identities.current('w', 'e1')).toBeUndefined();
  expect(identities.kept()).toEqual([{ name: 'w', epoch: undefined }]);
  expect(identities.replace(keysOf({ a: of('e2') })).revoked).toEqual([{ name: 'w', keptEpoch: 'e2' }]);
  expect(identities.replace(parseKeys({ a: { ...of('e2'), expires: 'soon' } }, () => {})).revoked).toEqual([]);
  expect(identities.replace(keysOf({})).revoked).toEqual([{ name: 'w', keptEpoch: undefined }]);
});
