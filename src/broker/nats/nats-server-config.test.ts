import { expect, test } from 'vitest';
import { natsServerConfig } from './nats-server-config.js';

const key = (letter: string): string => `U${letter.repeat(55)}`;
const plan = {
  listen: '127.0.0.1:4222',
  storeDir: '/var/lib/nats',
  hosts: [key('A')],
  workers: [
    { mailbox: 'w1', publicKey: key('B') },
    { mailbox: 'team.two', publicKey: key('C') },
  ],
};

test('each worker has an account of its own, which imports what is its own and nothing else', () => {
  const text = natsServerConfig(plan);
  const account = text.slice(text.indexOf('  "HOSTLER_W_w1" {'), text.indexOf('  "HOSTLER_W_team~two" {'));
  const subjects = [...account.matchAll(/subject: "([^"]+)"/g)].map((match) => match[1]);
  expect(subjects).toEqual([
    'hostler.req.w1.*',
    'hostler.cancel.w1.*',
    'hostler.joined.w1',
    '$JS.ACK.HOSTLER_REPLIES_w1.worker.>',
    '$JS.API.DIRECT.GET.HOSTLER_MANIFESTS.hostler.manifest.w1',
    'hostler.out.w1',
    'hostler.tell.w1',
    'hostler.tellall',
  ]);
  expect(account).toContain(key('B'));
  expect(account).not.toContain(key('C'));
  expect(account).not.toContain('jetstream');
});

test('two keys of one mailbox are two users of one account', () => {
  const text = natsServerConfig({ ...plan, workers: [...plan.workers, { mailbox: 'w1', publicKey: key('D') }] });
  expect(text.match(/"HOSTLER_W_w1" \{/g)).toHaveLength(1);
  expect(text.match(/\{ service: "hostler\.req\.w1\.\*", accounts/g)).toHaveLength(1);
  const account = text.slice(text.indexOf('  "HOSTLER_W_w1" {'), text.indexOf('  "HOSTLER_W_team~two" {'));
  const users = [...account.matchAll(/\{ nkey: (\w+), (permissions: [^}]+\}[^}]+\})/g)];
  expect(users.map((user) => user[1])).toEqual([key('B'), key('D')]);
  expect(users[0]?.[2]).toBe(users[1]?.[2]);
});

test.each([
  ['a seed for a public key', { hosts: [`S${key('A')}`] }],
  ['the same key twice', { workers: [{ mailbox: 'w1', publicKey: key('A') }] }],
  ['a mailbox that is a pattern', { workers: [{ mailbox: '*', publicKey: key('B') }] }],
  ['a folder that ends the text', { storeDir: '/x"\nauthorization {}' }],
  ['an address that ends the text', { listen: '127.0.0.1:1"' }],
])('is refused with %s', (_what, changes) => {
  expect(() => natsServerConfig({ ...plan, ...changes } as typeof plan)).toThrow(
    expect.objectContaining({ code: 'invalid_spec' }),
  );
});

test('no secret is quoted when a seed was given by mistake', () => {
  const seed = `S${key('Q')}`;
  try {
    natsServerConfig({ ...plan, hosts: [seed] });
    expect.unreachable();
  } catch (error) {
    expect(JSON.stringify(error)).not.toContain('QQQQ');
  }
});
