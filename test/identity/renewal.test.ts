/** Renewal in a running host if the client secret, the authorization server or the file of the store has a fault. */
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { parseServerDefinition } from '../../src/config/server-definition.js';
import { Identity } from '../../src/identity/identity.js';
import { newHolder } from '../../src/identity/lease-holder.js';
import { isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { systemRandom } from '../../src/kernel/random.js';
import { createRedactor } from '../../src/kernel/redact.js';
import { eventually } from '../eventually.js';
import { GuardedServer } from '../fakes/guarded-server.js';
import { logIn } from '../fixtures/identity/browser.js';
import { faults } from '../fixtures/identity/site.js';
import { countFor } from '../tier.js';
import { hostOn, startLoginWorld } from './login-world.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A folder for the file of a secret. */
function secretFile(text: string): { readonly file: string; put(text: string): void } {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-secret-'));
  ends.push(() => rmSync(folder, { recursive: true, force: true }));
  const file = path.join(folder, 'secret');
  const put = (value: string) => writeFileSync(file, value, { mode: 0o600 });
  put(text);
  return { file, put };
}

describe('the secret of a configured client', () => {
  const settings = (issuer: string, clientSecret: string) => ({ issuer, clientId: 'app', clientSecret });

  async function loggedIn() {
    const all = await startLoginWorld();
    all.as.authMethods = ['client_secret_basic'];
    all.as.addClient({ client_id: 'app', client_secret: 'first-secret' });
    const auth = settings(all.as.issuer, 'first-secret');
    const { row } = await all.rig.login({ url: all.url, auth });
    return { ...all, row };
  }

  test('AC-K3 is rotated in its file, and the next refresh uses the new secret', async () => {
    const { as, rig, url, row } = await loggedIn();
    const { file, put } = secretFile('first-secret');
    const { host, call, redactor } = hostOn(rig);
    await host.open({ mcpServers: { docs: { url, auth: settings(as.issuer, `\${file:${file}}`) } } });
    expect(await call()).toBe('done');
    as.addClient({ client_id: 'app', client_secret: 'second-secret' });
    put('second-secret');
    as.grants.expireAccessTokens();
    expect(await call()).toBe('done');
    expect(as.tokenRequests('refresh_token')).toHaveLength(1);
    expect(rig.store.readGrant(row.id)).toMatchObject({ state: 'live', gen: 2 });
    expect(redactor.mask('second-secret')).not.toContain('second');
  });

  test('AC-K3 comes from a command: the command runs again if the secret that it gave before is refused', async () => {
    const { as, rig, url } = await loggedIn();
    const { file, put } = secretFile('first-secret');
    const { provider } = hostOn(rig, { exec: { app: { argv: ['cat', file], ttl: '1h' } } });
    const docs = provider('docs', url, settings(as.issuer, `\${exec:app}`));
    as.grants.expireAccessTokens();
    expect(await docs.refusedOnce()).toBe(true);
    as.addClient({ client_id: 'app', client_secret: 'second-secret' });
    put('second-secret');
    as.grants.expireAccessTokens();
    expect(await docs.refusedOnce()).toBe(true);
    // One request with the first secret; then one with the first secret again, which is refused, and one with the second.
    expect(as.tokenRequests('refresh_token')).toHaveLength(3);
  });

  test('a wrong secret in one project is refused there, and no login of another project is lost', async () => {
    const { as, rig, url, row } = await loggedIn();
    const [wrong, right] = [hostOn(rig), hostOn(rig)];
    const auth = (secret: string) => ({ mcpServers: { docs: { url, auth: settings(as.issuer, secret) } } });
    await wrong.host.open(auth('wrong-secret'));
    await right.host.open(auth('first-secret'));
    expect([await wrong.call(), await right.call()]).toEqual(['done', 'done']);
    as.grants.expireAccessTokens();
    const error: unknown = await wrong.host.call('docs', 'read', {}).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: 'needs_reauth',
      hint: expect.stringContaining('correct auth.clientId, auth.clientSecret or auth.clientKey'),
      details: { reason: 'client_refused' },
    });
    expect(JSON.stringify(error)).not.toMatch(/wrong-secret|hostler login/);
    for (let calls = 0; calls < 20; calls++) expect(await wrong.call()).toBe('needs_reauth client_refused');
    expect(as.tokenRequests('refresh_token')).toHaveLength(1);
    expect(rig.store.readGrant(row.id)).toMatchObject({ state: 'live', gen: 1 });
    expect(await right.call()).toBe('done');
    expect(rig.store.readGrant(row.id)).toMatchObject({ state: 'live', gen: 2 });
    // The token of the other project serves this one too.
    rig.touch();
    await eventually('it is served', async () => (await wrong.call()) === 'done');
  });

  test('an entry without the secret uses the token, and sends no request without credentials for the next one', async () => {
    const { as, rig, url, row } = await loggedIn();
    const docs = hostOn(rig).provider('docs', url, {});
    expect(docs.current()?.header[1]).toBe(`Bearer ${row.accessToken}`);
    as.grants.expireAccessTokens();
    expect(await docs.refusedOnce()).toBe(false);
    expect([docs.advice?.('token')?.reason, as.tokenRequests('refresh_token')]).toEqual(['client_refused', []]);
    expect(rig.store.readGrant(row.id)?.state).toBe('live');
  });

  test('two servers of one host that share a grant: a secret that cannot be read does not keep the other from being used', async () => {
    const { as, rig, url, row } = await loggedIn();
    const { provider } = hostOn(rig);
    provider('right', url, settings(as.issuer, 'first-secret'));
    const missing = provider('missing', url, settings(as.issuer, `\${file:/nowhere/secret}`));
    as.grants.expireAccessTokens();
    expect(await missing.refusedOnce()).toBe(true);
    expect(rig.store.readGrant(row.id)).toMatchObject({ gen: 2, failures: 0 });
  });

  test('two servers of one host that share a grant: a key that is no PKCS #8 does not keep the other from being used', async () => {
    const { as, rig, url } = await startLoginWorld();
    const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const pem = keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    as.authMethods = ['private_key_jwt'];
    as.addClient({
      ...{ client_id: 'app', token_endpoint_auth_method: 'private_key_jwt' },
      publicKey: keys.publicKey.export({ type: 'spki', format: 'pem' }).toString(),
    });
    const auth = (key: string) => ({ issuer: as.issuer, clientId: 'app', clientKey: { pem: key } });
    const { row } = await rig.login({ url, auth: auth(pem) });
    const { provider, problems } = hostOn(rig);
    provider('right', url, auth(pem));
    const wrong = provider('wrong', url, auth('no key'));
    as.grants.expireAccessTokens();
    expect(await wrong.refusedOnce()).toBe(true);
    expect(rig.store.readGrant(row.id)).toMatchObject({ gen: 2, failures: 0 });
    expect(problems).toMatchObject([{ details: { reason: 'client_key' } }]);
    // A service with such a key is told which setting to correct. It is not told to wait for its authorization server.
    const job = provider('job', url, { ...auth('no key'), grant: 'client_credentials' });
    expect(await job.refusedOnce()).toBe(false);
    expect(job.advice?.('token')).toEqual({
      reason: 'client_key',
      hint: expect.stringMatching(/auth\.clientKey: is not a PKCS #8 private key for ES256; write a key such as/),
    });
  });

  test('two servers of one host that share a grant: the right secret is used, whichever server is newer', async () => {
    const { as, rig, url } = await loggedIn();
    const { provider } = hostOn(rig);
    const right = provider('right', url, settings(as.issuer, 'first-secret'));
    const wrong = provider('wrong', url, settings(as.issuer, 'wrong-secret'));
    for (const each of [right, wrong]) {
      as.grants.expireAccessTokens();
      expect(await each.refusedOnce()).toBe(true);
    }
    // The wrong secret was sent once.
    expect(as.tokenRequests('refresh_token')).toHaveLength(3);
  });
});

describe('AC-A12 many servers of one host that share a grant, with slow commands', () => {
  test.each([
    ['each with another secret: four secrets are sent, and no others are resolved', 0, 4, 4, 'client_refused'],
    ['each command takes 10 s: no secret is resolved after a minute', 10_000, 6, 1, 'auth_server'],
  ])('AC-A12 %s', async (_what, slowMs, resolutions, requests, reason) => {
    const { as, rig, url } = await startLoginWorld();
    as.authMethods = ['client_secret_basic'];
    as.addClient({ client_id: 'app', client_secret: 'right-secret' });
    const auth = { issuer: as.issuer, clientId: 'app', clientSecret: 'right-secret' };
    await rig.login({ url, auth });
    const clock = new FakeClock();
    let resolved = 0;
    const secrets = {
      resolve: async () => {
        resolved++;
        clock.advance(slowMs);
        return slowMs > 0 ? 'wrong-secret' : `wrong-secret-${resolved}`;
      },
    };
    const identity = new Identity({
      ...{ folder: rig.folder, clock, random: systemRandom, redactor: createRedactor(), secrets },
      onProblem: () => {},
    });
    ends.push(() => identity.close());
    const providers = Array.from({ length: 8 }, (_, at) =>
      identity.providerFor(parseServerDefinition(`s${at}`, { url, auth }, true)),
    );
    const [first] = providers;
    const signal = new AbortController().signal;
    const outcome = await first
      ?.recover(first.current(), { kind: 'token', challenge: 'Bearer', signal, deadlineAtMs: Number.MAX_SAFE_INTEGER })
      .catch((error: unknown) => (isHostError(error) ? error.details.reason : error));
    expect([resolved, as.tokenRequests('refresh_token').length]).toEqual([resolutions, requests]);
    expect(outcome === false ? first?.advice?.('token')?.reason : outcome).toBe(reason);
  });
});

describe('AC-A20 a passing fault of the authorization server', () => {
  const job = (issuer: string, clientSecret = 'secret-of-the-job') => ({
    ...{ grant: 'client_credentials', issuer, clientId: 'job', clientSecret },
  });

  test.each([
    ['temporarily_unavailable', faults.oauthError('temporarily_unavailable')],
    ['server_error', faults.oauthError('server_error')],
    ['a page', faults.html(403)],
    ['429', faults.status(429, { 'retry-after': '1' })],
  ])('AC-A20 %s: no login is asked for, and the next attempt succeeds when the fault is over', async (_what, fault) => {
    const { as, rig, url } = await startLoginWorld();
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    as.site.fail('token', fault);
    const docs = hostOn(rig).provider('docs', url, job(as.issuer));
    for (let attempt = 0; attempt < 5; attempt++)
      await expect(docs.refusedOnce()).rejects.toMatchObject({ code: 'reconnecting', details: { server: 'docs' } });
    as.site.heal();
    expect(await docs.refusedOnce()).toBe(true);
  });

  test('AC-A20 a token that arrives while another process writes to the store is stored when that process is done', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    const docs = hostOn(rig).provider('docs', url, job(as.issuer));
    let release = () => {};
    as.editTokens = (answer) => {
      release = rig.lock();
      setTimeout(release, 1_000);
      return answer;
    };
    expect(await docs.refusedOnce()).toBe(true);
    release();
    expect(as.tokenRequests()).toHaveLength(1);
  });

  test('AC-A20 a token that arrives after the host was closed is not renewed by this host', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    const clock = new FakeClock();
    const { provider, identity } = hostOn(rig, { clock });
    await rig.login({ url });
    provider('person', url, {});
    const docs = provider('docs', url, job(as.issuer));
    as.editTokens = (answer) => {
      identity.close();
      return answer;
    };
    await docs.refusedOnce();
    expect(rig.store.grants()).toHaveLength(2);
    expect(clock.pendingTimers).toBe(0);
  });

  test('AC-A20 metadata that redirects or is invalid is looked at again', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    const docs = hostOn(rig, { clock: new FakeClock() }).provider('docs', url, job(as.issuer));
    for (const fault of [faults.redirect('https://captive.example/'), faults.answer({ status: 200, body: '[]' })]) {
      as.site.fail('as-inserted', fault);
      expect(await docs.refusedOnce()).toBe(false);
      expect(docs.advice?.('token')?.reason).toMatch(/^(redirected|metadata_invalid)$/);
    }
    as.site.heal();
    expect(await docs.refusedOnce()).toBe(true);
  });

  test('AC-A20 a client that is refused is sent again after some minutes, and at once with another secret', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.addClient({ client_id: 'job', client_secret: 'right-secret' });
    const clock = new FakeClock();
    const { file, put } = secretFile('wrong-secret');
    const docs = hostOn(rig, { clock }).provider('docs', url, job(as.issuer, `\${file:${file}}`));
    for (let calls = 0; calls < 20; calls++) expect(await docs.refusedOnce()).toBe(false);
    expect([as.tokenRequests().length, docs.advice?.('token')?.reason]).toEqual([1, 'client_refused']);
    clock.advance(4 * 60_000);
    expect(await docs.refusedOnce()).toBe(false);
    expect(as.tokenRequests()).toHaveLength(2);
    put('right-secret');
    expect(await docs.refusedOnce()).toBe(true);
  });
});

test.each([
  ['429', faults.status(429)],
  ['500', faults.status(500)],
  ['403 with a page', faults.html(403)],
  ['a reset', faults.reset()],
] as const)(
  'AC-A15 an authorization server that answers %s: the login is kept, and is renewed when the fault is over',
  async (_what, fault) => {
    const { as, rig, url } = await startLoginWorld();
    const { row } = await rig.login({ url });
    const clock = new FakeClock();
    const docs = hostOn(rig, { clock }).provider('docs', url, {});
    as.grants.expireAccessTokens();
    as.site.fail('token', fault);
    for (let attempt = 0; attempt < 10; attempt++) {
      await expect(docs.refusedOnce()).rejects.toMatchObject({ code: 'reconnecting' });
      expect([docs.describe?.()?.needsLogin, rig.store.readGrant(row.id)?.state]).toEqual([false, 'live']);
    }
    // All attempts but the first wait for the pause of the first.
    expect(as.tokenRequests('refresh_token')).toHaveLength(1);
    as.site.heal();
    clock.advance(6 * 60_000);
    expect(await docs.refusedOnce()).toBe(true);
    expect(rig.store.readGrant(row.id)).toMatchObject({ state: 'live', failures: 0 });
  },
);

describe('AC-A16 the end of a grant, on a fake clock', () => {
  test('AC-A16 a host learns of its own refusal at once, and of a refusal or a login of another process within a second', async () => {
    const { as, rig, url } = await startLoginWorld();
    const { row } = await rig.login({ url });
    const clock = new FakeClock();
    const host = hostOn(rig, { clock });
    const [docs, other] = [host.provider('docs', url, {}), hostOn(rig, { clock }).provider('docs', url, {})];
    as.grants.expireAccessTokens();
    as.site.fail('token', faults.oauthError('invalid_grant'));
    expect(await docs.refusedOnce()).toBe(false);
    expect([docs.describe?.()?.state, clock.nowMs()]).toEqual(['dead', 0]);
    rig.touch();
    clock.advance(1_000);
    expect(other.describe?.()).toMatchObject({ state: 'dead', next: 'run: hostler login docs' });
    as.site.heal();
    await rig.login({ url });
    rig.touch();
    clock.advance(1_000);
    expect([docs, other].map((each) => each.describe?.()?.state)).toEqual(['granted', 'granted']);
    expect(docs.current()?.header[1]).not.toBe(`Bearer ${row.accessToken}`);
  });
});

test('a host leaves a grant alone that its servers have ceased to use: other hosts may use the grant', async () => {
  const { as, rig, url } = await startLoginWorld();
  for (const client_id of ['one', 'two']) as.addClient({ client_id });
  const clock = new FakeClock();
  const login = (clientId: string) => rig.login({ url, auth: { clientId }, clock });
  const { row } = await login('one');
  const docs = hostOn(rig, { clock }).provider('docs', url, {});
  expect(docs.current()?.header[1]).toBe(`Bearer ${row.accessToken}`);
  clock.advance(1_000);
  await login('two');
  rig.touch();
  clock.advance(1_000);
  expect(docs.describe?.()?.clientId).toBe('two');
  await clock.advanceAsync(2 * 3_600_000);
  expect(rig.store.readGrant(row.id)).toEqual(row);
});

test.each(['removed', 'set aside'])(
  'a store that is %s under a running host: the next login is used all the same',
  async (how) => {
    const { rig, url } = await startLoginWorld();
    await rig.login({ url });
    const clock = new FakeClock();
    const docs = hostOn(rig, { clock }).provider('docs', url, {});
    expect(docs.current()).toBeDefined();
    const at = (name: string) => path.join(rig.folder, name);
    for (const name of ['identity.db', 'identity.db-wal', 'identity.db-shm']) {
      if (!existsSync(at(name))) continue;
      if (how === 'removed') rmSync(at(name));
      else renameSync(at(name), at(`${name}.unusable`));
    }
    clock.advance(1_000);
    expect([docs.current(), docs.describe?.()?.state]).toEqual([undefined, 'none']);
    // The store of another process.
    const { openStore } = await import('../../src/identity/open-store.js');
    const { row } = await rig.login({ url, store: openStore({ folder: rig.folder, onProblem: () => {} }) });
    clock.advance(1_000);
    expect(docs.current()?.header[1]).toBe(`Bearer ${row.accessToken}`);
  },
);

test('AC-A13 an ID token that cannot be decoded loses nothing, neither at a login nor at a refresh', async () => {
  const { as, rig, url } = await startLoginWorld();
  as.editTokens = (answer) => ({ ...answer, id_token: 'not.a-token.at-all' });
  const { row } = await rig.login({ url });
  expect([row.facts.identity, row.state]).toEqual([undefined, 'live']);
  const docs = hostOn(rig).provider('docs', url, {});
  as.grants.expireAccessTokens();
  expect(await docs.refusedOnce()).toBe(true);
  expect(rig.store.readGrant(row.id)).toMatchObject({ gen: 2, state: 'live' });
  expect(as.grants.families.filter(({ isRevoked }) => isRevoked)).toEqual([]);
});

test('status shows a login that waits for its person, until it ends or its process is gone, and how the tokens are sealed', async () => {
  const { rig, url } = await startLoginWorld();
  const host = hostOn(rig);
  const [docs, other] = [host.provider('docs', url, {}), host.provider('other', url, { account: 'work' })];
  const states = () => [docs, other].map((each) => each.describe?.()?.state);
  await docs.refusedOnce();
  expect([states(), docs.describe?.()?.store]).toEqual([['none', 'none'], 'file']);
  const seen: unknown[] = [];
  const person = async ({ url: shown }: { url: URL }) => {
    seen.push(states(), docs.describe?.()?.next);
    await logIn(shown.href);
  };
  await rig.login({ url, person });
  expect(seen).toEqual([['pending', 'none'], 'run: hostler login docs']);
  rig.touch();
  await eventually('the login is found', () => states()[0] === 'granted');
  expect(await rig.reason({ url, auth: { account: 'work' }, timeoutMs: 50, person: () => {} })).toBe('login_expired');
  expect(states()).toEqual(['granted', 'none']);
  const note = (by: object, untilMs: number) =>
    rig.store.changeValue('pending', () => JSON.stringify([{ url, account: 'work', by: JSON.stringify(by), untilMs }]));
  const holder = JSON.parse(newHolder()) as object;
  for (const [by, untilMs, state] of [
    [holder, Date.now() + 60_000, 'pending'],
    [{ ...holder, ownerPid: 2 ** 22 + 1 }, Date.now() + 60_000, 'none'],
    [holder, Date.now() - 1, 'none'],
  ] as const) {
    note(by, untilMs);
    expect(states()[1]).toBe(state);
  }
  rig.store.changeValue('pending', () => '[null, 7, {"url":');
  expect(states()[1]).toBe('none');
});

test('AC-A17 two tools that need different scopes, one after the other: both are reported, and asked for together', async () => {
  const { rs, rig, url } = await startLoginWorld();
  rs.toolScopes = { write: ['scope-w'], admin: ['scope-a'] };
  await rig.login({ url });
  const { host } = hostOn(rig);
  const news: string[] = [];
  host.on('auth', ({ status }) => news.push(status));
  await host.open({ mcpServers: { docs: { url } } });
  const hintOf = (tool: string) => host.call('docs', tool, {}).catch((error: { hint?: string }) => error.hint);
  expect(await hintOf('write')).toContain('scope-w');
  expect(await hintOf('admin')).toContain('scope-a');
  expect(host.status()[0]?.auth).toMatchObject({ state: 'step_up', wanted: ['scope-w', 'scope-a'] });
  expect(news.filter((each) => each === 'step_up')).toHaveLength(2);
  await rig.login({ url });
  expect(rig.shown.at(-1)?.url.searchParams.get('scope')).toBe('scope-w scope-a');
});

test('AC-A17 a call that needs more scopes while another process writes to the store: they are stored when that process is done', async () => {
  const { rig, url } = await startLoginWorld();
  const { row } = await rig.login({ url });
  const docs = hostOn(rig).provider('docs', url, {});
  const challenge = 'Bearer error="insufficient_scope", scope="more"';
  const release = rig.lock();
  setTimeout(release, 500);
  const context = { kind: 'scope', challenge, signal: new AbortController().signal } as const;
  expect(await docs.recover(docs.current(), { ...context, deadlineAtMs: Number.MAX_SAFE_INTEGER })).toBe(false);
  expect(docs.advice?.('scope', challenge)?.reason).toBe('insufficient_scope');
  expect([rig.store.readGrant(row.id)?.wanted, docs.describe?.()?.state]).toEqual([['more'], 'step_up']);
});

test('AC-A19 real refusals of many servers: no browser, no registration, no request to an authorization server', async () => {
  const [servers, rounds] = [countFor(20, 100), countFor(2, 10)];
  const { as, rig } = await startLoginWorld();
  const guarded = await new GuardedServer('modern').start();
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-browser-'));
  const before = { ...process.env };
  ends.push(
    () => guarded.http.close(),
    () => Object.assign(process.env, { PATH: before.PATH, DISPLAY: before.DISPLAY ?? '' }),
    () => rmSync(folder, { recursive: true, force: true }),
  );
  // A browser would be opened with this program.
  const opened = path.join(folder, 'opened');
  writeFileSync(path.join(folder, 'xdg-open'), `#!/bin/sh\necho "$1" >> '${opened}'\n`);
  chmodSync(path.join(folder, 'xdg-open'), 0o700);
  Object.assign(process.env, { PATH: `${folder}:${before.PATH}`, DISPLAY: ':0' });
  const { host, call, problems } = hostOn(rig);
  const names = Array.from({ length: servers }, (_, at) => `s${at}`);
  const origin = new URL(guarded.http.url).origin;
  await host.open({ mcpServers: Object.fromEntries(names.map((name) => [name, { url: `${origin}/${name}` }])) });
  for (let round = 0; round < rounds; round++) {
    const outcomes = await Promise.all(names.map((name) => call(name)));
    expect(new Set(outcomes)).toEqual(new Set(['needs_reauth login_needed']));
    await Promise.all(names.map((name) => host.reload(name).catch(() => {})));
  }
  expect(guarded.refused).toBeGreaterThanOrEqual(servers * rounds);
  expect([existsSync(opened), as.site.seen.length, problems]).toEqual([false, 0, []]);
});
