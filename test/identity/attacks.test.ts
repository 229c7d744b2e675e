/** Attacks by an authorization server, a web page or a local program during a login, beyond the cases of login.test.ts. */
import { createServer } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { openCallback } from '../../src/identity/callback.js';
import { eventually } from '../eventually.js';
import { authorize, logIn } from '../fixtures/identity/browser.js';
import { startHostile } from '../fixtures/identity/hostile.js';
import { faults, json } from '../fixtures/identity/site.js';
import { Home } from './home.js';
import { hostOn, startLoginWorld } from './login-world.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

describe('an authorization server that shows the login page of another one, and would receive its code', () => {
  const documentUrl = 'https://client.example/hostler.json';
  const ways = [
    ['a metadata document', { clientMetadataUrl: documentUrl }],
    ['a registered client', {}],
    ['a client of the configuration', { clientId: 'made-by-hand' }],
  ] as const;
  test.each(ways)('%s: the login ends, unless `iss` proves where the code came from', async (_way, auth) => {
    const { as, rig, url } = await startLoginWorld();
    const honest = await startHostile();
    ends.push(() => honest.close());
    Object.assign(honest.as, { resources: undefined, iss: undefined });
    Object.assign(as, { cimd: true, advertisesIss: false, iss: undefined });
    as.editMetadata = (metadata) => ({ ...metadata, authorization_endpoint: `${honest.as.issuer}/authorize` });
    // The attacker has registered a client with the same redirect URI at the honest server.
    honest.as.addClient({ client_id: 'made-by-hand' });
    const own = honest.as.addClient({ client_id: 'of-the-attacker' });
    as.site.fail('register', faults.answer(json({ client_id: own.client_id }, 201)));
    const error = await rig.login({ url, auth }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      details: { reason: 'metadata_invalid' },
      message: expect.stringContaining(new URL(honest.as.issuer).origin),
      hint: expect.stringContaining(`--issuer ${as.issuer}`),
    });
    expect([rig.shown, as.registrations, as.tokenRequests(), honest.as.site.seen]).toEqual([[], 0, [], []]);
    // With `iss` announced, the code of the honest server is refused.
    as.advertisesIss = true;
    expect(await rig.reason({ url, auth })).toBe('issuer_mismatch');
    expect(as.tokenRequests()).toEqual([]);
  });

  test.each(ways)(
    '%s: if the operator names the issuer, its login page may be at another origin',
    async (_way, auth) => {
      const { as, rig, url } = await startLoginWorld();
      const page = await startHostile();
      ends.push(() => page.close());
      Object.assign(as, { cimd: true, advertisesIss: false, iss: undefined, resources: undefined });
      if ('clientId' in auth) as.addClient({ client_id: auth.clientId });
      // The page of this service is on a host of its own.
      page.as.site.fail('authorize', (_run, response, { query }) => {
        response.writeHead(302, { location: `${as.issuer}/authorize?${query}` }).end();
      });
      as.editMetadata = (metadata) => ({ ...metadata, authorization_endpoint: `${page.as.issuer}/authorize` });
      const person = async ({ url: shown }: { url: URL }) => logIn((await authorize(shown.href)).location?.href ?? '');
      expect(await rig.reason({ url, auth, person })).toBe('metadata_invalid');
      expect(await rig.reason({ url, auth, person, issuer: as.issuer })).toBeUndefined();
      expect(await rig.reason({ url, auth: { ...auth, issuer: as.issuer }, person })).toBeUndefined();
    },
  );
});

test('a program that holds the IPv6 port of localhost does not receive the code', async () => {
  const thief = createServer((socket) => socket.destroy());
  const isHeld = await new Promise<boolean>((resolve) => {
    thief.once('error', () => resolve(false));
    thief.listen(0, '::1', () => resolve(true));
  });
  ends.push(() => thief.close());
  if (!isHeld) return;
  const { port } = thief.address() as { port: number };
  const opening = openCallback({ host: 'localhost', port, path: '/callback', onReturn: () => undefined });
  await expect(opening).rejects.toMatchObject({ details: { reason: 'callback_port' } });
  // The IPv4 port is free again.
  const again = await openCallback({ host: '127.0.0.1', port, path: '/callback', onReturn: () => undefined });
  again.close();
});

test('AC-A9 a page that floods the callback does not prevent the redirect of the person', async () => {
  const { rig, url } = await startLoginWorld();
  const flooded = async ({ url: shown, redirectUri }: { url: URL; redirectUri: string }) => {
    const flood = () => fetch(`${redirectUri}?code=x&state=y`).catch(() => undefined);
    await Promise.all(Array.from({ length: 30 }, flood));
    const [landing] = await Promise.all([logIn(shown.href), ...Array.from({ length: 10 }, flood)]);
    expect(landing.status).toBe(200);
  };
  expect((await rig.login({ url, person: flooded })).row.state).toBe('live');
});

test.each([
  ['an escape sequence', '\u001b]0;owned\u0007'],
  ['a newline', '\nhttps://trusted.example'],
  ['a character of another script', '\u0430'],
])('an issuer with %s is refused before any request to it', async (_what, text) => {
  const { as, rs, rig, url } = await startLoginWorld();
  rs.editPrm = (metadata) => ({ ...metadata, authorization_servers: [`${as.issuer}/${text}`] });
  expect(await rig.reason({ url })).toBe('metadata_invalid');
  expect(as.site.seen).toEqual([]);
});

test('a client id with control characters, or of any length, is refused', async () => {
  const { as, rig, url } = await startLoginWorld();
  for (const id of ['a\u001b[2J', 'a\nb', 'x'.repeat(2_001), '', 7]) {
    as.site.fail('register', faults.answer(json({ client_id: id }, 201)));
    expect([id, await rig.reason({ url })]).toEqual([id, 'registration_refused']);
  }
  expect(rig.shown).toEqual([]);
});

test('an account name with a token or control characters is stored without them', async () => {
  const { as, rig, url } = await startLoginWorld();
  as.editTokens = (answer) => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const aud = [...as.grants.clients.keys()].at(-1);
    const name = `ada\u001b[2J\n${answer.access_token}`;
    return {
      ...answer,
      id_token: `${part({ alg: 'none' })}.${part({ iss: as.issuer, aud, preferred_username: name })}.x`,
    };
  };
  const { row } = await rig.login({ url });
  expect(row.facts.identity).toMatch(/^ada/);
  expect(row.facts.identity).not.toContain(row.accessToken);
  expect(row.facts.identity).not.toMatch(/[\x00-\x1f]/);
});

test('`--yes` accepts another account, but not another authorization server', async () => {
  const { as, rs } = await startLoginWorld();
  const other = await startHostile();
  const home = new Home();
  ends.push(
    () => other.close(),
    () => home.end(),
  );
  home.write({ mcpServers: { docs: { url: rs.url } } });
  as.idToken = { preferred_username: 'ada' };
  const yes = () => home.login(['docs', '--no-browser', '--yes'], (url) => logIn(url));
  expect((await yes()).code).toBe(0);
  as.idToken = { preferred_username: 'bob' };
  expect(await yes()).toMatchObject({ code: 0, stdout: expect.stringContaining('as bob') });
  rs.issuers = [other.as];
  other.as.resources = undefined;
  expect(await yes()).toMatchObject({ code: 1, stderr: expect.stringContaining('now names') });
  expect(other.as.site.seen).toEqual([]);
});

test('the login sends the values of references in headers, not their text', async () => {
  const { as, rs } = await startLoginWorld();
  const home = new Home();
  ends.push(() => home.end());
  home.put('key', 'value-of-the-key');
  const headers = { 'X-Key': `\${file:key}`, 'X-Run': `\${exec:run}` };
  home.write({
    secrets: { exec: { run: { argv: ['printf', 'output-of-the-command'] } } },
    mcpServers: { docs: { url: rs.url, headers } },
  });
  const login = await home.login(['docs', '--no-browser'], (url) => logIn(url));
  expect(login.code).toBe(0);
  const sent = rs.site.at('mcp').map(({ headers: received }) => [received['x-key'], received['x-run']]);
  expect(new Set(sent.map(String))).toEqual(new Set(['value-of-the-key,output-of-the-command']));
  // The authorization server gets none of them.
  expect(JSON.stringify(as.site.seen)).not.toMatch(/value-of-the-key|output-of-the-command/);
});

test('scopes that a server asks for are bounded', async () => {
  const { rs, rig, url } = await startLoginWorld();
  const { row } = await rig.login({ url });
  const provider = hostOn(rig).provider('docs', rs.url, {});
  for (let asked = 0; asked < 150; asked++) {
    const challenge = `Bearer error="insufficient_scope", scope="scope-${asked}"`;
    const context = {
      kind: 'scope' as const,
      challenge,
      signal: new AbortController().signal,
      deadlineAtMs: Number.MAX_SAFE_INTEGER,
    };
    expect(await provider.recover(provider.current(), context)).toBe(false);
  }
  expect(provider.advice?.('scope', 'Bearer error="insufficient_scope", scope="scope-149"')?.reason).toBe(
    'scope_denied',
  );
  expect(rig.store.readGrant(row.id)?.wanted.length).toBeLessThanOrEqual(100);
});

test('the callback closes when the login is over, however it ends', async () => {
  const { as, rig, url } = await startLoginWorld();
  as.person = 'silent';
  const abort = new AbortController();
  const leave = ({ url: shown }: { url: URL }) => void authorize(shown.href).then(() => abort.abort());
  expect(await rig.reason({ url, signal: abort.signal, person: leave })).toBe('cancelled');
  expect(await rig.reason({ url, timeoutMs: 50, person: () => {} })).toBe('login_expired');
  for (const { redirectUri } of rig.shown)
    await eventually('the port is closed', () =>
      fetch(redirectUri).then(
        () => false,
        () => true,
      ),
    );
});
