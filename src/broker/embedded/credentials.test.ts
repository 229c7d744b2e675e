import { expect, test } from 'vitest';
import { digestOf } from '../../config/keys.js';
import { type Credential, Credentials } from './credentials.js';

const credential = (name: string, over: Partial<Credential> = {}): Credential => ({
  ...{ name, digest: digestOf(`${name}-key`), mailbox: name, role: 'r', kind: 'worker', sendsTo: ['host'] },
  expiresAtMs: undefined,
  ...over,
});
const claim = (key: string, mailbox?: string, role?: string) => ({ key, mailbox, role });

test('a key says who it is; a hello may say the same, and nothing else', () => {
  const credentials = new Credentials([credential('ann'), credential('bob', { expiresAtMs: 1_000 })]);
  expect(credentials.admit(claim('ann-key'), 0)?.mailbox).toBe('ann');
  expect(credentials.admit(claim('ann-key', 'ann', 'r'), 0)?.mailbox).toBe('ann');
  for (const bad of [
    ...[claim(''), claim('ann'), claim('ann-key', 'bob'), claim('ann-key', ''), claim('ann-key', undefined, 'x')],
    ...[claim(digestOf('ann-key')), claim('a'.repeat(2_000))],
  ])
    expect(credentials.admit(bad, 0)).toBeUndefined();
  expect(credentials.admit(claim('bob-key'), 999)?.name).toBe('bob');
  expect(credentials.admit(claim('bob-key'), 1_000)).toBeUndefined();
  expect(credentials.nextExpiryMs(0)).toBe(1_000);
  expect(credentials.nextExpiryMs(1_000)).toBeUndefined();
});

test('two keys of one mailbox are how a key is changed; they must say the same of it', () => {
  const second = credential('ann-2', { mailbox: 'ann' });
  expect(new Credentials([credential('ann'), second]).owns('ann')).toBe(true);
  for (const bad of [
    [credential('ann'), { ...second, role: 'other' }],
    [credential('ann'), { ...second, kind: 'host' as const }],
    [credential('ann'), credential('bob', { digest: digestOf('ann-key') })],
    [credential('ann', { mailbox: '../ann' })],
    [credential('ann', { mailbox: 'host' })],
    [credential('ann', { sendsTo: ['HOST'] })],
  ])
    expect(() => new Credentials(bad)).toThrow(expect.objectContaining({ code: 'invalid_spec' }));
});
