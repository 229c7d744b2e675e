import type { LookupAddress } from 'node:dns';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { Pool } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isHostError } from '../../src/kernel/errors.js';
import { checkUrl, type Dial, guardedDial } from '../../src/transports/http/dial-guard.js';

/** Listens on every address of this machine; every connection is counted. */
let canary: Server;
let port: number;
let connections = 0;

beforeAll(async () => {
  canary = createServer((socket) => {
    connections++;
    socket.on('error', () => {});
    socket.on('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi'));
  });
  await new Promise<void>((resolve) => canary.listen(0, '::', resolve));
  port = (canary.address() as AddressInfo).port;
});
afterAll(() => new Promise<void>((resolve) => canary.close(() => resolve())));

/** Answers of a resolver that an attacker controls. */
const NAMES: Record<string, string[]> = {
  'inside.example': ['127.0.0.1'],
  'six.example': ['::1'],
  'mapped.example': ['::ffff:127.0.0.1'],
  'mixed.example': ['93.184.216.34', '127.0.0.1'],
  'last.example': ['2606:4700::1111', '93.184.216.34', '::1'],
  'metadata.example': ['169.254.169.254'],
  'nat64.example': ['64:ff9b::7f00:1'],
  'any.example': ['0.0.0.0'],
  'localhost.': ['127.0.0.1'],
  localhost: ['127.0.0.1', '::1'],
  'app.localhost': ['127.0.0.1'],
  'xn--lcalhost-n4a.example': ['127.0.0.1'],
};
const asAddresses = (addresses: string[]): LookupAddress[] =>
  addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));

const publicOnly = guardedDial({
  policy: 'public',
  server: 'evil',
  resolve: (hostname, done) => done(null, asAddresses(NAMES[hostname] ?? ['127.0.0.1'])),
});

/** Like a caller: parses the URL, then dials it. Resolves to the reason of the refusal, or to the received text. */
async function dial(text: string, connect: Dial, policy: 'any' | 'public' = 'public'): Promise<string> {
  const url = checkUrl(text, policy, 'evil');
  if (isHostError(url)) return url.details.reason ?? '';
  const pool = new Pool(url.origin, { connect });
  try {
    const response = await pool.request({ path: '/', method: 'GET' });
    return await response.body.text();
  } catch (error) {
    return isHostError(error) ? (error.details.reason ?? '') : String(error);
  } finally {
    await pool.destroy();
  }
}

const hosts = [
  // Dotted, short, octal, hex, decimal and mixed forms of 127.0.0.1.
  ...['127.0.0.1', '127.0.0.1.', '127.1', '127.0.1', '0177.0.0.1', '0177.0.0.01', '00000177.0.0.1', '0x7f.0.0.1'],
  ...[
    '0x7f.1',
    '0x7f000001',
    '0X7F000001',
    '2130706433',
    '017700000001',
    '127.0.0x0.1',
    '127.00.00.01',
    '0x7f.0x0.0x0.0x1',
  ],
  ...['127.127.127.127', '127.255.255.254', '%31%32%37.0.0.1', '１２７.0.0.1', '127。0。0。1', '①②⑦.0.0.1'],
  // The unspecified address reaches loopback on most systems.
  ...['0.0.0.0', '0', '0x0', '00', '0.0', '0.0.0.0.', '[::]', '[0:0:0:0:0:0:0:0]'],
  // IPv6 loopback and IPv4 inside IPv6.
  ...[
    '[::1]',
    '[0:0:0:0:0:0:0:1]',
    '[0000::0001]',
    '[::0:1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[::ffff:7f00:0001]',
  ],
  ...['[0:0:0:0:0:ffff:127.0.0.1]', '[::127.0.0.1]', '[::7f00:1]', '[::ffff:0:127.0.0.1]', '[64:ff9b::127.0.0.1]'],
  ...['[64:ff9b::7f00:1]', '[64:ff9b:1::7f00:1]', '[2002:7f00:1::]', '[2001:0:7f00:1::]'],
  // Inside and metadata.
  ...['10.0.0.1', '0xa.0.0.1', '012.0.0.1', '172.16.0.1', '172.31.255.255', '192.168.0.1', '3232235521', '100.64.0.1'],
  ...[
    '169.254.169.254',
    '0xa9fea9fe',
    '2852039166',
    '0251.0376.0251.0376',
    '[::ffff:169.254.169.254]',
    '[fd00:ec2::254]',
  ],
  ...[
    '[fe80::1]',
    '[fc00::1]',
    '[ff02::1]',
    '224.0.0.1',
    '255.255.255.255',
    '192.0.0.192',
    '168.63.129.16',
    '198.18.0.1',
  ],
  // Names, which are checked by their resolved addresses.
  ...Object.keys(NAMES),
  ...['LOCALHOST', 'INSIDE.EXAMPLE', 'inside.example.', 'unknown.example'],
];

test('no form of an inner address is dialled', async () => {
  const forms = [
    ...hosts.map((host) => `http://${host}:${port}/`),
    ...['127.0.0.1', '[::1]', 'inside.example'].map((host) => `https://${host}:${port}/`),
    `http://93.184.216.34@127.0.0.1:${port}/`,
    `http://example.com:80@127.0.0.1:${port}/`,
    `http://example.com%00@127.0.0.1:${port}/`,
    `http://127.0.0.1:${port}\\@example.com/`,
    `http:\\\\127.0.0.1:${port}\\`,
    `http:127.0.0.1:${port}/`,
    `http:///127.0.0.1:${port}/`,
    `ht\ntp://127.0.0.1:${port}/`,
    `http://127.0.0.1\t:${port}/`,
  ];
  expect(forms.length).toBeGreaterThanOrEqual(60);
  const outcomes = await Promise.all(forms.map(async (form) => [form, await dial(form, publicOnly)] as const));
  const refusals = ['address_refused', 'url_userinfo', 'url_malformed', 'url_scheme'];
  expect(outcomes.filter(([, outcome]) => !refusals.includes(outcome))).toEqual([]);
  expect(outcomes.filter(([, outcome]) => outcome === 'address_refused').length).toBeGreaterThan(60);
  expect(connections).toBe(0);
});

test('a literal address is checked by the dial itself, also when the URL was not checked before', async () => {
  for (const host of ['127.0.0.1', '0x7f.1', '[::1]', '[::ffff:127.0.0.1]', '0.0.0.0']) {
    const pool = new Pool(`http://${host}:${port}`, { connect: publicOnly });
    const outcome = await pool.request({ path: '/', method: 'GET' }).catch((error: unknown) => error);
    expect(outcome).toMatchObject({ code: 'denied', details: { server: 'evil', reason: 'address_refused' } });
    await pool.destroy();
  }
  expect(connections).toBe(0);
});

test('a name that resolves differently the second time reaches no inner address', async () => {
  let asked = 0;
  const rebinding = guardedDial({
    policy: 'public',
    server: 'evil',
    resolve: (_hostname, done) => done(null, asAddresses(asked++ === 0 ? ['127.0.0.1'] : ['127.0.0.2'])),
  });
  for (let i = 0; i < 3; i++) expect(await dial(`http://turn.example:${port}/`, rebinding)).toBe('address_refused');
  expect(asked).toBe(3);
  expect(connections).toBe(0);
});

test('the canary answers when the operator names it, so the refusals above are real', async () => {
  const any = guardedDial({ policy: 'any', server: 'own' });
  const resolved = guardedDial({
    policy: 'any',
    server: 'own',
    resolve: (_name, done) => done(null, asAddresses(['127.0.0.1'])),
  });
  expect(await dial(`http://127.0.0.1:${port}/`, any, 'any')).toBe('hi');
  expect(await dial(`http://inside.example:${port}/`, resolved, 'any')).toBe('hi');
  expect(connections).toBe(2);
});
