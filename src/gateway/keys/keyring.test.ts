import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { type KeyEntry, parseKeys, reservedKeyName } from '../../config/keys.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { embedder } from '../../policy/operation.js';
import { headerCharsMax, Keyring } from './keyring.js';

const hashOf = (key: string) => `sha256:${createHash('sha256').update(key).digest('hex')}`;
const keysOf = (table: Record<string, object>): ReadonlyMap<string, KeyEntry> =>
  parseKeys(table, (problem) => {
    throw problem;
  });

const clock = new FakeClock(0, new Date('2026-01-01T00:00:00Z'));
const ring = () =>
  new Keyring({
    clock,
    localKey: 'hk_local',
    keys: keysOf({ ann: { hash: hashOf('ann-key'), role: 'dev' }, bob: { hash: hashOf('bob-key') } }),
  });

test.each([
  ['Bearer ann-key', 'ann', 'dev'],
  ['bearer ann-key', 'ann', 'dev'],
  ['Bearer   ann-key ', 'ann', 'dev'],
  ['Bearer bob-key', 'bob', undefined],
])('the header "%s" authenticates %s', (header, id, role) => {
  const keyring = ring();
  expect(keyring.authenticate(header)).toEqual({ id, role, scopes: [] });
  expect(keyring.authenticate(header)).toBe(keyring.authenticate(header));
});

test.each([
  undefined,
  '',
  'Bearer',
  'Bearer ',
  'ann-key',
  'Basic ann-key',
  'Bearer ann-key2',
  'Bearer ann-ke',
  'Bearer ann-key bob-key',
  'Bearer ann-key\n',
  `Bearer ${hashOf('ann-key')}`,
  `Bearer ${'a'.repeat(headerCharsMax)}`,
])('the header %j authenticates no principal', (header) => {
  expect(ring().authenticate(header)).toBeUndefined();
});

test('the local key belongs to the embedder, even if an entry of the configuration has the same key', () => {
  const keyring = new Keyring({ clock, localKey: 'hk_local', keys: keysOf({ eve: { hash: hashOf('hk_local') } }) });
  expect(keyring.authenticate('Bearer hk_local')).toBe(embedder);
  expect(new Keyring({ clock }).authenticate('Bearer hk_local')).toBeUndefined();
});

test('a key is refused from the time of its expiry on', () => {
  const keys = keysOf({ ann: { hash: hashOf('ann-key'), expires: '2026-01-01T00:01:00Z' } });
  const ownClock = new FakeClock(0, new Date('2026-01-01T00:00:00Z'));
  const keyring = new Keyring({ clock: ownClock, keys });
  ownClock.advance(59_999);
  expect(keyring.authenticate('Bearer ann-key')?.id).toBe('ann');
  ownClock.advance(1);
  expect(keyring.authenticate('Bearer ann-key')).toBeUndefined();
});

test('replaced keys are valid at once, and the local key stays valid', () => {
  const keyring = ring();
  keyring.replace(keysOf({ ann: { hash: hashOf('new-key'), role: 'ops' } }));
  expect(keyring.authenticate('Bearer ann-key')).toBeUndefined();
  expect(keyring.authenticate('Bearer bob-key')).toBeUndefined();
  expect(keyring.authenticate('Bearer new-key')).toMatchObject({ id: 'ann', role: 'ops' });
  expect(keyring.authenticate('Bearer hk_local')).toBe(embedder);
});

test('no key can have the name of the embedder', () => {
  expect(reservedKeyName).toBe(embedder.id);
});
