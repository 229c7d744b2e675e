/** `hostler login`, `logout` and `auth` as processes, beside a running `hostler up`. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { authorize, logIn } from '../fixtures/identity/browser.js';
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { timeLimitMs } from '../tier.js';
import { Home } from './home.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function world(): Promise<Hostile & { home: Home }> {
  const hostile = await startHostile();
  const home = new Home();
  ends.push(
    () => hostile.close(),
    () => home.end(),
  );
  home.write({ mcpServers: { docs: { url: hostile.rs.url } }, listen: { port: 0 } });
  return { ...hostile, home };
}

test('AC-A16 a server that needs a login is served after it, in a host that keeps running', async () => {
  const { as, rs, home } = await world();
  const up = home.start(['up', '--config', home.config, '--json']);
  await eventually('hostler serves', () => up.output().includes('"ready":true'));
  const state = async () => {
    const { stdout } = await home.run('status', '--json');
    return (JSON.parse(stdout) as { servers: { state: string; auth: { next?: string } }[] }).servers[0];
  };
  const before = await eventually('it needs a login', async () => {
    const row = await state();
    return row?.state === 'auth_required' && row;
  });
  expect(before.auth.next).toBe('run: hostler login docs');
  const call = await home.run('call', 'docs', 'read', '{"nonce":"1"}');
  expect([call.code, call.stderr]).toEqual([4, expect.stringContaining('hostler login docs')]);
  const { pid } = up.child;

  const login = await home.login(['docs', '--no-browser'], (url) => logIn(url));
  expect(login).toMatchObject({ code: 0, stdout: expect.stringContaining('logged in to docs') });
  const loggedInAtMs = performance.now();
  // The log of the host says when. The start of a command such as `status` would be measured, too.
  await eventually('it is ready', () => up.output().includes('docs: starting → ready'));
  expect(performance.now() - loggedInAtMs).toBeLessThan(timeLimitMs(2_000));
  expect((await state())?.state).toBe('ready');
  expect((await home.run('call', 'docs', 'read', '{"nonce":"2"}')).code).toBe(0);
  expect([rs.executed.map(({ nonce }) => nonce), up.child.pid]).toEqual([['2'], pid]);
  const explained = await home.run('why', 'docs');
  for (const text of ['granted', as.issuer, 'registered']) expect(explained.stdout).toContain(text);

  const listed = await home.run('auth', '--config', home.config, '--json');
  expect(JSON.parse(listed.stdout)).toMatchObject({
    key: 'file',
    logins: [{ servers: ['docs'], state: 'live', issuer: as.issuer }],
  });
  expect((await home.run('doctor', '--config', home.config)).stdout).toContain('1 logins are stored');

  const out = await home.run('logout', 'docs', '--config', home.config);
  expect(out).toMatchObject({ code: 0, stdout: expect.stringContaining('revoked at the authorization server') });
  expect(as.site.at('revoke').map(({ form }) => form.get('token_type_hint'))).toEqual([
    'refresh_token',
    'access_token',
  ]);
  expect((await home.run('logout', 'docs', '--config', home.config)).code).toBe(1);

  // No token, code or secret is in anything that was printed or written.
  const secrets = [
    ...rs.tokens,
    ...as.tokenRequests().flatMap(({ form }) => [form.get('code'), form.get('code_verifier')]),
  ];
  const printed = [up.output(), login.stdout, explained.stdout, listed.stdout, call.stderr, out.stdout].join('');
  const files = readdirSync(home.folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const written = files.map((entry) => readFileSync(path.join(entry.parentPath, entry.name), 'latin1')).join('');
  expect(secrets.length).toBeGreaterThanOrEqual(3);
  for (const secret of secrets)
    expect([printed.includes(secret ?? '-'), written.includes(secret ?? '-')]).toEqual([false, false]);
});

test('AC-A26 logout forgets the tokens also if the authorization server is down, and says so', async () => {
  const { as, home } = await world();
  expect((await home.login(['docs', '--no-browser'], (url) => logIn(url))).code).toBe(0);
  as.site.fail('revoke', (_run, response) => void response.destroy());
  expect(await home.run('logout', 'docs', '--config', home.config)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('not revoked: the authorization server did not confirm it'),
  });
  expect(JSON.parse((await home.run('auth', '--config', home.config, '--json')).stdout)).toMatchObject({ logins: [] });
});

test('AC-A26 logout of a server ends the login that its `auth` selects; logout of a URL ends those of all clients, but not of another account', async () => {
  const { as, rs, home } = await world();
  const secret = 'planted-secret-of-the-client';
  as.authMethods = ['client_secret_post', 'none'];
  as.addClient({ client_id: 'own', client_secret: secret, token_endpoint_auth_method: 'client_secret_post' });
  const own = { issuer: as.issuer, clientId: 'own', clientSecret: secret };
  const entries = [undefined, own, { account: 'work' }];
  for (const auth of entries) {
    home.write({ mcpServers: { docs: { url: rs.url, ...(auth ? { auth } : {}) } } });
    expect((await home.login(['docs', '--no-browser'], (url) => logIn(url))).code).toBe(0);
  }
  const logins = async () =>
    (
      JSON.parse((await home.run('auth', '--json', '--config', home.config)).stdout) as {
        logins: { account: string; clientId: string }[];
      }
    ).logins;
  expect(await logins()).toHaveLength(3);
  home.write({ mcpServers: { docs: { url: rs.url, auth: own } } });
  expect(await home.run('logout', 'docs', '--config', home.config)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('docs: forgotten here; revoked'),
  });
  expect(as.site.count('revoke')).toBe(2);
  expect((await logins()).map(({ account, clientId }) => [account, clientId === 'own'])).toEqual([
    ['', false],
    ['work', false],
  ]);
  expect(await home.run('logout', rs.url)).toMatchObject({ code: 0 });
  expect(await logins()).toMatchObject([{ account: 'work' }]);
  expect([...as.grants.tokens.keys()].filter((token) => as.grants.active(token))).toHaveLength(1);
  // The secret of the configuration is sent for its own client only.
  const revoked = as.site.at('revoke').map(({ form }) => [form.get('client_id'), form.get('client_secret') === secret]);
  expect(revoked.filter(([, hasSecret]) => hasSecret)).toEqual([
    ['own', true],
    ['own', true],
  ]);
  expect(revoked).toHaveLength(4);
});

test('AC-A26 logout and auth work if the secret of the client cannot be read: the login is forgotten, and no command runs', async () => {
  const { as, rs, home } = await world();
  as.authMethods = ['client_secret_basic'];
  as.addClient({ client_id: 'own', client_secret: 'secret-of-the-client' });
  const auth = { issuer: as.issuer, clientId: 'own', clientSecret: `\${exec:vault}` };
  const mark = path.join(home.folder, 'asked');
  const write = (script: string) =>
    home.write({
      secrets: { exec: { vault: { argv: ['sh', '-c', script] } } },
      mcpServers: { docs: { url: rs.url, auth } },
    });
  write('printf secret-of-the-client');
  expect((await home.login(['docs', '--no-browser'], (url) => logIn(url))).code).toBe(0);
  write(`touch '${mark}'; exit 1`);
  expect(await home.run('auth', 'docs', '--config', home.config)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('granted'),
  });
  expect(existsSync(mark)).toBe(false);
  expect(await home.run('logout', 'docs', '--config', home.config)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('docs: forgotten here; not revoked'),
    stderr: expect.stringContaining("the command 'vault' ended with exit code 1"),
  });
  expect([existsSync(mark), as.site.count('revoke')]).toEqual([true, 0]);
  expect((await home.run('auth', '--config', home.config)).stdout).toContain('no logins');
});

test('a login that no server uses is listed with its URL, and can be removed', async () => {
  const { as, rs, home } = await world();
  home.write({ mcpServers: { docs: { url: rs.url, auth: { account: 'work' } } } });
  expect((await home.login(['docs', '--no-browser'], (url) => logIn(url))).code).toBe(0);
  home.write({ mcpServers: {} });
  const listed = await home.run('auth', '--config', home.config);
  for (const text of [rs.url, 'work', 'hostler logout URL']) expect(listed.stdout).toContain(text);
  expect((await home.run('logout', rs.url)).code).toBe(1);
  expect(await home.run('logout', rs.url, '--account', 'work')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('revoked at the authorization server'),
  });
  expect(as.site.count('revoke')).toBe(2);
  expect((await home.run('auth', '--config', home.config)).stdout).toContain('no logins');
});

test('AC-A10 without a terminal: the URL is printed as JSON, an address can be pasted, and the exit code is 1 when the time is over', async () => {
  const { as, home } = await world();
  const startedAtMs = performance.now();
  let shownAfterMs = 0;
  const late = await home.login(['docs', '--json', '--timeout', '500ms'], () => {
    shownAfterMs = performance.now() - startedAtMs;
  });
  expect(shownAfterMs).toBeGreaterThan(0);
  expect(shownAfterMs).toBeLessThan(timeLimitMs(2_000));
  const [first, last] = late.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(first).toMatchObject({ url: expect.stringContaining('/authorize?'), expiresAt: expect.any(String) });
  expect([late.code, last]).toMatchObject([1, { ok: false, error: { reason: 'login_expired' } }]);
  const pasted = await home.login(['docs', '--no-browser'], async (url, child) => {
    const { location } = await authorize(url);
    child.stdin?.write(`${String(location).replace(/state=[^&]*/, 'state=wrong')}\n${location}\n`);
  });
  expect(pasted).toMatchObject({ code: 0, stderr: expect.stringContaining('not the address of this login') });
  expect(as.tokenRequests('authorization_code')).toHaveLength(1);
  const wrong = await home.login(['docs', '--no-browser'], (_url, child) => child.stdin?.write('a\nb\nc\n'));
  expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining('three pasted addresses') });
});

test.each([
  ['client_credentials', { grant: 'client_credentials', clientId: 'job', clientSecret: 'secret-of-job' }, {}],
  ['auth.grant is none', { grant: 'none' }, {}],
  ['headers.Authorization', undefined, { Authorization: 'Bearer fixed' }],
])(
  'a server that needs no login (%s) is refused as wrong usage, and nothing is asked or stored',
  async (what, auth, headers) => {
    const { as, rs, home } = await world();
    const entry = auth?.grant === 'client_credentials' ? { ...auth, issuer: as.issuer } : auth;
    home.write({ mcpServers: { docs: { url: rs.url, headers, ...(entry ? { auth: entry } : {}) } } });
    const login = await home.run('login', 'docs', '--config', home.config);
    expect(login).toMatchObject({ code: 2, stderr: expect.stringContaining(what.split(' ')[0] as string) });
    expect([rs.site.seen, as.site.seen]).toEqual([[], []]);
    expect(existsSync(path.join(home.folder, '.local'))).toBe(false);
  },
);

test('a port that does not exist is wrong usage', async () => {
  const { home } = await world();
  for (const port of ['99999', '65536', '-1', 'x'])
    expect(await home.run('login', 'docs', `--port=${port}`, '--config', home.config)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--port'),
    });
});

test('AC-A10 AC-A3 a pasted address with a wrong `iss` ends the login, and no text of the address is shown or stored', async () => {
  const { as, rs, home } = await world();
  home.write({ mcpServers: { docs: { url: rs.url } }, listen: { port: 0 } });
  const up = home.start(['up', '--config', home.config, '--json']);
  await eventually('hostler serves', () => up.output().includes('"ready":true'));
  const planted = 'PLANTED-TEXT-OF-THE-REDIRECT';
  as.iss = `https://${planted.toLowerCase()}.example`;
  as.editRedirect = (back) => {
    back.set('error', 'access_denied');
    back.set('error_description', planted);
    back.set('error_uri', `https://evil.example/${planted}`);
  };
  const pasted = await home.login(['docs', '--no-browser'], async (url, child) => {
    const { location } = await authorize(url);
    expect(String(location)).toContain(planted);
    child.stdin?.write(`${location}\n`);
  });
  expect(pasted).toMatchObject({ code: 1, stderr: expect.stringContaining('another authorization server') });
  const pages: string[] = [];
  const redirected = await home.login(['docs', '--json'], async (url) => {
    const { text, headers } = await logIn(url);
    pages.push(text, JSON.stringify([...headers]));
  });
  expect(redirected).toMatchObject({ code: 1, stdout: expect.stringContaining('issuer_mismatch') });
  const outputs = await Promise.all([
    ...[home.run('status', '--json'), home.run('why', 'docs', '--json'), home.run('logs', '--json')],
    ...[home.run('auth', '--json', '--config', home.config), home.run('doctor', '--json', '--config', home.config)],
  ]);
  const files = readdirSync(home.folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const written = files.map((entry) => readFileSync(path.join(entry.parentPath, entry.name), 'latin1'));
  const sinks = [pasted, redirected, pages, outputs, up.output(), written].map((sink) => JSON.stringify(sink));
  for (const sink of sinks) expect([sink.length > 10, sink.toUpperCase().includes(planted)]).toEqual([true, false]);
  expect(as.tokenRequests()).toEqual([]);
});

test('an unknown server is answered with the nearest name', async () => {
  const { home } = await world();
  expect(await home.run('login', 'dosc', '--config', home.config)).toMatchObject({
    stderr: expect.stringContaining('did you mean docs?'),
  });
});
