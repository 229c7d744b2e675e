/** `createHost` with `identity` uses the logins of the user: its events, its metrics, and logins of other processes. */
import { afterEach, expect, test } from 'vitest';
import { createMetrics } from '../../src/gateway/metrics/metrics.js';
import { createHost, type Host, type HostConfig, HostError } from '../../src/index.js';
import { eventually } from '../eventually.js';
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { faults } from '../fixtures/identity/site.js';
import { LoginRig } from './login-rig.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

type World = Hostile & { rig: LoginRig; url: string; host: Host; news: string[] };

async function world(config: (hostile: Hostile) => HostConfig, begin: (rig: LoginRig, url: string) => unknown) {
  const hostile = await startHostile();
  const rig = new LoginRig();
  ends.push(
    () => rig.end(),
    () => hostile.close(),
  );
  await begin(rig, hostile.rs.url);
  const host = await createHost(config(hostile), { identity: { dir: rig.folder }, onProblem: () => {} });
  ends.push(() => host.close());
  const news: string[] = [];
  host.on('auth', ({ server, status }) => news.push(`${server} ${status}`));
  return { ...hostile, rig, url: hostile.rs.url, host, news } satisfies World;
}

const docs = ({ rs }: Hostile): HostConfig => ({ mcpServers: { docs: { url: rs.url } } });
const call = (host: Host, server = 'docs') =>
  host.call(server, 'read', {}).then(
    () => 'done',
    (error: unknown) => (error instanceof HostError ? `${error.code} ${error.details.reason}` : String(error)),
  );
const login = (rig: LoginRig, url: string) => rig.login({ url });

test('a program uses the login of the user, refreshes it, and reports events and metrics', async () => {
  const { as, host, news } = await world(docs, login);
  const metrics = createMetrics(host);
  ends.push(() => metrics.close());
  expect(await call(host)).toBe('done');
  as.grants.expireAccessTokens();
  expect(await call(host)).toBe('done');
  expect(news).toEqual(['docs needed', 'docs refreshed', 'docs recovered']);
  const [row] = host.status();
  expect(row?.auth).toMatchObject({ state: 'granted', refreshes: { ok: 1 } });
  const text = await metrics.text();
  expect(text).toContain('hostler_auth_refresh_total{server="docs",result="ok"} 1');
  expect(text).toContain('hostler_auth_grants{state="granted"} 1');
  expect(text).toContain('hostler_auth_grants{state="dead"} 0');
  const [, endS] = /hostler_auth_token_expiry_seconds\{server="docs"\} ([\d.]+)/.exec(text) ?? [];
  expect(Number(endS)).toBe(Date.parse(row?.auth?.expiresAt ?? '') / 1_000);
});

test('a grant that has ended is an event, and is counted', async () => {
  const { as, host, news } = await world(docs, login);
  const metrics = createMetrics(host);
  ends.push(() => metrics.close());
  expect(await call(host)).toBe('done');
  as.site.fail('token', faults.oauthError('invalid_grant'));
  as.grants.expireAccessTokens();
  expect(await call(host)).toBe('needs_reauth grant_revoked');
  expect(news).toEqual(['docs needed', 'docs dead', 'docs failed']);
  expect(await metrics.text()).toContain('hostler_auth_refresh_total{server="docs",result="invalid_grant"} 1');
});

test('without `identity` no store is opened, and `authProvider` comes first', async () => {
  const { rig, url, rs } = await world(docs, login);
  const plain = await createHost({ mcpServers: { docs: { url } } }, { onProblem: () => {} });
  ends.push(() => plain.close());
  expect(await call(plain)).toMatch(/^needs_reauth/);
  const own = { current: () => undefined, recover: async () => false, onChanged: () => () => {} };
  const given = await createHost(
    { mcpServers: { docs: { url } } },
    { identity: { dir: rig.folder }, authProvider: () => own },
  );
  ends.push(() => given.close());
  expect(await call(given)).toMatch(/^needs_reauth/);
  expect(rs.executed).toEqual([]);
});

test('a logout in another process ends the use of a valid token, and the next login is used, even of another account', async () => {
  const { as, rs, rig, url, host, news } = await world(docs, login);
  expect(await call(host)).toBe('done');
  const row = rig.store.findGrant(url, { account: '' });
  rig.elsewhere((database) => {
    database.exec('DELETE FROM grants');
    database.exec('DELETE FROM served');
  });
  await eventually('it is logged out', () => news.includes('docs logout'));
  expect(await call(host)).toBe('needs_reauth login_needed');
  expect(as.grants.active(row?.accessToken ?? '')).toBeDefined();
  as.account = 'bob';
  await rig.login({ url });
  rig.touch();
  await eventually('it is logged in', async () => (await call(host)) === 'done');
  expect(news).toContain('docs login');
  // The token of another account is used although the old one is still valid.
  as.account = 'eve';
  const { row: third } = await rig.login({ url });
  rig.touch();
  await eventually('the newest login is used', async () => {
    await call(host);
    return rs.executed.at(-1)?.token === third.accessToken;
  });
});

test('AC-A26 tokens that arrive after a logout are revoked, also when the host has noticed the logout before', async () => {
  const { as, rig, url, host, news } = await world(docs, login);
  expect(await call(host)).toBe('done');
  const row = rig.store.findGrant(url, { account: '' });
  as.site.fail('token', (...request) => {
    rig.elsewhere((database) => database.exec('DELETE FROM grants; DELETE FROM served;'));
    faults.slow(2_000)(...request);
  });
  as.grants.expireAccessTokens();
  expect(await call(host)).not.toBe('done');
  expect(news).toContain('docs logout');
  const forms = () => as.site.at('revoke').map(({ form }) => form);
  await eventually('both tokens are revoked', () => forms().length === 2);
  expect(forms().map((form) => form.get('token_type_hint'))).toEqual(['refresh_token', 'access_token']);
  expect(forms().map((form) => form.get('token'))).not.toContain(row?.refreshToken);
  expect(as.grants.active(forms()[1]?.get('token') ?? '')).toBeUndefined();
});

test('AC-A16 two servers that share a grant are both served again after a login', async () => {
  const both = ({ rs }: Hostile): HostConfig => ({ mcpServers: { docs: { url: rs.url }, same: { url: rs.url } } });
  const { as, rig, url, host } = await world(both, login);
  expect([await call(host), await call(host, 'same')]).toEqual(['done', 'done']);
  as.site.fail('token', faults.oauthError('invalid_grant'));
  as.grants.expireAccessTokens();
  for (const server of ['docs', 'same']) expect(await call(host, server)).toBe('needs_reauth grant_revoked');
  as.site.heal();
  await rig.login({ url });
  rig.touch();
  for (const server of ['docs', 'same'])
    await eventually(`${server} is served`, () =>
      host.status().some((row) => row.name === server && row.state === 'ready'),
    );
  expect([await call(host), await call(host, 'same')]).toEqual(['done', 'done']);
});

test('a service without a person needs no login, and a moved authorization server is an event', async () => {
  const job = ({ rs, as }: Hostile): HostConfig => {
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    const auth = { grant: 'client_credentials', issuer: as.issuer, clientId: 'job', clientSecret: 'secret-of-the-job' };
    return { mcpServers: { docs: { url: rs.url, auth } } };
  };
  const { rs, host, news, rig } = await world(job, () => {});
  expect(await call(host)).toBe('done');
  const other = await startHostile();
  ends.push(() => other.close());
  rs.issuers = [other.as];
  const [grant] = rig.store.grants();
  rig.store.removeGrant(grant?.id ?? '');
  expect(await call(host)).toMatch(/^needs_reauth/);
  expect(news).toContain('docs issuer_changed');
  expect(other.as.tokenRequests()).toEqual([]);
});

test('AC-A25 an entry whose address is edited gets no token of the old address', async () => {
  const { host, rs } = await world(docs, login);
  expect(await call(host)).toBe('done');
  const other = await startHostile();
  ends.push(() => other.close());
  const before = rs.site.seen.length;
  for (const url of [other.rs.url, `${rs.site.origin}/other`, rs.url.replace('127.0.0.1', 'localhost')]) {
    await host.reconfigure({ mcpServers: { docs: { url } } });
    expect(await call(host)).not.toBe('done');
  }
  expect([...other.rs.tokens]).toEqual([]);
  expect(rs.site.seen.slice(before).filter(({ headers }) => headers.authorization !== undefined)).toEqual([]);
  await host.reconfigure(docs({ rs } as Hostile));
  expect(await call(host)).toBe('done');
});
