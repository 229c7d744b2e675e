/** The listener with TLS, seen by curl and the official client; certificates are made by openssl. */
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import os from 'node:os';
import path from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createHttpIngress, type HttpIngress } from '../../src/gateway/http/http-ingress.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { fixtureEntry, Workplace } from '../cli/hostler-process.js';
import { FakeRouter } from './http-harness.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-tls-'));
const at = (name: string) => path.join(folder, name);
const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** A certificate of the test’s own authority. */
function certify(name: string, serial: number): void {
  openssl('req', ...newKey, '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', `/CN=${name}`);
  writeFileSync(at('san'), 'subjectAltName=IP:127.0.0.1,DNS:localhost');
  const ca = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-set_serial', String(serial), '-days', '2', '-extfile', 'san'];
  openssl('x509', '-req', '-in', `${name}.csr`, '-out', `${name}.crt`, ...ca);
}

beforeAll(() => {
  openssl(
    'req',
    '-x509',
    ...newKey,
    '-keyout',
    'ca.key',
    '-out',
    'ca.crt',
    '-subj',
    '/CN=test authority',
    '-days',
    '2',
  );
  for (const [i, name] of ['first', 'second'].entries()) certify(name, i + 1);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const open: Array<() => Promise<unknown>> = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

const ca = () => ({ ca: execFileSync('cat', [at('ca.crt')]) });
const install = (name: string) => {
  copyFileSync(at(`${name}.crt`), at('served.crt'));
  copyFileSync(at(`${name}.key`), at('served.key'));
};

async function serve(tls: { cert: string; key: string }) {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const ingress: HttpIngress = await createHttpIngress({
    router: new FakeRouter(),
    clock,
    random: seededRandom(1),
    authenticate: () => ({ id: 'ann', role: undefined, scopes: [] }),
    listen: { host: '127.0.0.1', port: 0, tls },
    onProblem: (error) => problems.push(error),
  });
  const url = new URL(await ingress.listen());
  // On this clock the drain never ends by itself.
  open.push(() => {
    const closed = ingress.close(0);
    clock.advance(10_000);
    return closed;
  });
  return { clock, problems, url };
}

/** The status of one request, and the serial number of the certificate in use. */
function ask(url: URL, agent: Agent): Promise<[status: number | undefined, serial: string, port: number | undefined]> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const sent = request(url, { agent, method: 'POST', headers }, (response) => {
      const socket = response.socket as TLSSocket;
      response.resume().on('end', () => {
        resolve([response.statusCode, socket.getPeerCertificate().serialNumber, socket.localPort]);
      });
    });
    sent.on('error', reject);
    sent.end(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: {} }));
  });
}

test('replaced files are used for new connections, and open connections continue; invalid files change nothing', async () => {
  install('first');
  const { clock, problems, url } = await serve({ cert: at('served.crt'), key: at('served.key') });
  expect(url.protocol).toBe('https:');
  const kept = new Agent({ keepAlive: true, maxSockets: 1, ...ca() });
  open.push(async () => kept.destroy());
  const first = await ask(url, kept);
  expect(first[1]).toBe('01');
  install('second');
  clock.advance(5_000);
  expect(await ask(url, kept)).toEqual(first);
  expect((await ask(url, new Agent(ca())))[1]).toBe('02');
  copyFileSync(at('first.key'), at('served.key'));
  clock.advance(5_000);
  expect(problems).toMatchObject([
    { code: 'invalid_spec', message: expect.stringContaining('do not belong together') },
  ]);
  clock.advance(60_000);
  expect([problems.length, (await ask(url, new Agent(ca())))[1]]).toEqual([1, '02']);
  install('first');
  clock.advance(5_000);
  expect((await ask(url, new Agent(ca())))[1]).toBe('01');
  expect(await ask(url, kept)).toEqual(first);
});

test('clients without TLS, or with an old version of TLS, get nothing', async () => {
  install('first');
  const { url } = await serve({ cert: at('served.crt'), key: at('served.key') });
  await expect(fetch(url.href.replace('https:', 'http:'))).rejects.toThrow();
  const old = connect({
    port: Number(url.port),
    host: '127.0.0.1',
    maxVersion: 'TLSv1.1',
    minVersion: 'TLSv1',
    ...ca(),
  });
  await expect(
    new Promise((resolve, reject) => old.on('secureConnect', resolve).on('error', reject)),
  ).rejects.toThrow();
});

const client = `
  import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
  const [url, key] = process.argv.slice(1);
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: 'Bearer ' + key } } }));
  console.log((await client.listTools()).tools.length);
  await client.close();
`;

test('hostler up serves HTTPS: curl and the official client connect with the authority, and not without it', async () => {
  const place = new Workplace();
  open.push(() => place.remove());
  for (const name of ['first.crt', 'first.key']) copyFileSync(at(name), path.join(place.folder, name));
  // Paths start at the folder of the configuration.
  const tls = { cert: 'first.crt', key: 'first.key' };
  place.configure({ listen: { tls }, mcpServers: { a: fixtureEntry() } });
  const { url, key } = await place.up().ready();
  expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+\/mcp$/);
  const curl = (...args: string[]) =>
    spawnSync('curl', ['-sS', '-o', '/dev/null', '-w', '%{http_code}', ...args], { encoding: 'utf8' });
  const health = url.replace('/mcp', '/healthz');
  expect(curl('--cacert', at('ca.crt'), health).stdout).toBe('200');
  expect(curl(health).stderr).toContain('certificate');
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const run = (env: Record<string, string>) =>
    promisify(execFile)(process.execPath, ['--input-type=module', '-e', client, url, key], {
      cwd: root,
      env: { ...process.env, ...env },
    });
  expect(Number((await run({ NODE_EXTRA_CA_CERTS: at('ca.crt') })).stdout)).toBeGreaterThan(0);
  await expect(run({})).rejects.toThrow();
});

test.each([
  [
    'a missing file',
    { cert: 'missing.crt', key: 'first.key' },
    /listen\.tls\.cert: \S*missing\.crt cannot be read \(ENOENT\)/,
  ],
  ['a key of another certificate', { cert: 'first.crt', key: 'second.key' }, /second\.key do not belong together/],
  ['a file that is no certificate', { cert: 'san', key: 'first.key' }, /listen\.tls: \S*san and \S*first\.key do not/],
])('hostler up with %s ends with an error that names the file', async (_what, tls, text) => {
  const place = new Workplace();
  open.push(() => place.remove());
  const absolute = Object.fromEntries(Object.entries(tls).map(([name, file]) => [name, at(file)]));
  place.configure({ listen: { tls: absolute }, mcpServers: {} });
  const { code, stderr, stdout } = await place.up().closed;
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toMatch(text);
});
