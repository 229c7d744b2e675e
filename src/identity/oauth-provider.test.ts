import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { authEntry } from '../config/auth-settings.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { AuthRecovery } from '../session/auth/auth-recovery.js';
import { TokenRefused } from '../transports/http/auth-token.js';
import { Grant } from './grant.js';
import type { NewGrant } from './identity-store.js';
import { OAuthProvider } from './oauth-provider.js';
import { openStore } from './open-store.js';
import type { TokenAnswer } from './token-endpoint.js';

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A grant, its provider and the recovery of a session, all on one fake clock. */
function setup(
  request: () => Promise<TokenAnswer>,
  auth: Record<string, unknown> = {},
  acquire: (scopes: readonly string[]) => Promise<unknown> = () => Promise.reject(new Error('not expected')),
) {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-provider-'));
  folders.push(folder);
  const clock = new FakeClock();
  const store = openStore({ folder, onProblem: () => {} });
  const nowMs = clock.date().getTime();
  const first: NewGrant = {
    ...{ url: 'https://s', resource: 'https://s', issuer: 'https://as', clientId: 'c', account: '' },
    ...{ accessToken: 'token-0', refreshToken: 'refresh', scopes: ['a'] },
    ...{ issuedMs: nowMs, expiresMs: nowMs + 3_600_000 },
    facts: {
      ...{ grantType: 'code', tokenEndpoint: 'https://as/t', authMethod: 'none', way: 'registered' },
      ...{ loginMs: 1, asked: [] },
    },
  };
  const row = store.saveLogin(first);
  const secrets = { know: () => {}, forget: () => {} };
  const requestsAtMs: number[] = [];
  const grant: Grant = new Grant(row, {
    ...{ store, clock, secrets, random: () => 0.5, onRefresh: () => {}, onProblem: () => {} },
    request: () => {
      requestsAtMs.push(clock.nowMs());
      return request();
    },
    revoke: async () => {},
    onChange: () => provider.changed(),
  });
  const provider: OAuthProvider = new OAuthProvider('docs', authEntry.parse(auth), {
    ...{
      clock,
      watch: () => {},
      release: () => {},
      storeError: () => undefined,
      isPending: () => false,
      keySource: 'file',
    },
    find: () => grant,
    acquire: async (scopes) => {
      await acquire(scopes);
      store.saveLogin({ ...first, accessToken: `for ${scopes.join(' ')}`, scopes });
      grant.reload();
      return grant;
    },
    addWanted: async (seen, scopes) => store.addWanted(seen, scopes),
  });
  const recovery = new AuthRecovery({ server: 'docs', provider, clock, secrets });
  const refused = (kind: 'token' | 'scope', challenge: string) =>
    new TokenRefused('refused', { server: 'docs' }, { kind, sent: recovery.current(), challenge });
  return { clock, grant, provider, recovery, refused, requestsAtMs, store, row };
}

const tokens = (accessToken: string): TokenAnswer => ({
  ...{ kind: 'tokens', accessToken, refreshToken: undefined, expiresInS: 3_600 },
  ...{ scope: undefined, idToken: undefined },
});

test('AC-A14 a notice of a new token does not count as its use: an idle grant is refreshed once a day', async () => {
  let count = 0;
  const { clock, recovery, requestsAtMs } = setup(async () => tokens(`token-${++count}`));
  recovery.current();
  await clock.advanceAsync(3_600_000);
  expect(requestsAtMs).toHaveLength(1);
  // No request is sent any more.
  for (let hour = 0; hour < 48; hour++) await clock.advanceAsync(3_600_000);
  expect(requestsAtMs).toHaveLength(3);
  const [first = 0, second = 0, third = 0] = requestsAtMs;
  expect([second - first, third - second]).toEqual([24 * 3_600_000, 24 * 3_600_000]);
  await clock.advanceAsync(3_600_000);
  expect(requestsAtMs).toHaveLength(3);
  // The next use finds a token that has ended, and renews it.
  expect(recovery.current()?.header[1]).toBe('Bearer token-3');
  await clock.advanceAsync(1);
  expect(requestsAtMs).toHaveLength(4);
});

test('AC-A16 after a refused call has found a new login, no login is asked for any more', async () => {
  const { clock, provider, recovery, refused, store, row, grant } = setup(async () => ({
    ...{ kind: 'refused', error: 'invalid_grant' },
  }));
  const limits = { deadlineAtMs: Number.MAX_SAFE_INTEGER };
  expect(await recovery.recover(refused('token', 'Bearer'), limits)).toBe('refused');
  expect(provider.describe()).toMatchObject({ state: 'dead', needsLogin: true });
  clock.advance(60_000);
  store.saveLogin({ ...row, url: 'https://s', accessToken: 'of-the-login' });
  expect(await recovery.recover(refused('token', 'Bearer'), limits)).toBe('renewed');
  expect(grant.token()?.header[1]).toBe('Bearer of-the-login');
  provider.reload();
  expect(provider.describe()).toMatchObject({ state: 'granted', needsLogin: false, next: undefined });
});

test('D-38 a token that ends within the pause after its renewal is renewed again, and no login is asked for', async () => {
  let count = 0;
  const short = () => ({ ...tokens(`token-${++count}`), expiresInS: 5 });
  const { clock, provider, recovery, refused, requestsAtMs } = setup(async () => short());
  const limits = { deadlineAtMs: Number.MAX_SAFE_INTEGER };
  expect(await recovery.recover(refused('token', 'Bearer'), limits)).toBe('renewed');
  // No call uses it before it ends.
  await clock.advanceAsync(6_000);
  expect(await recovery.recover(refused('token', 'Bearer'), limits)).toBe('renewed');
  expect([requestsAtMs.length, provider.describe().needsLogin]).toEqual([2, false]);
});

describe('AC-A15 an authorization server that hangs', () => {
  test('AC-A15 callers are told to try again, not to log in; the late answer is used', async () => {
    let finish: (answer: TokenAnswer) => void = () => {};
    const { clock, recovery, refused, requestsAtMs, provider } = setup(() => new Promise((done) => (finish = done)));
    const ask = () => recovery.recover(refused('token', 'Bearer'), { deadlineAtMs: Number.MAX_SAFE_INTEGER });
    for (let attempt = 0; attempt < 3; attempt++) {
      const waiting = ask();
      await clock.advanceAsync(14_000);
      expect(await waiting).toMatchObject({ code: 'reconnecting', details: { server: 'docs', retryAfterMs: 2_000 } });
    }
    expect([requestsAtMs.length, provider.describe().needsLogin]).toEqual([1, false]);
    finish(tokens('late'));
    await clock.advanceAsync(1);
    expect(recovery.current()?.header[1]).toBe('Bearer late');
  });

  test('AC-A15 if another process keeps the lease, callers are not told to log in either', async () => {
    const { clock, recovery, refused, store, row, provider } = setup(async () => tokens('second'));
    store.takeLease(row, 'other', clock.date().getTime(), () => false);
    const waiting = recovery.recover(refused('token', 'Bearer'), { deadlineAtMs: Number.MAX_SAFE_INTEGER });
    await clock.advanceAsync(16_000);
    expect(await waiting).toMatchObject({ code: 'reconnecting' });
    expect(provider.describe().needsLogin).toBe(false);
  });
});

describe('AC-A17 two calls with different scopes', () => {
  const challenge = (scope: string) => `Bearer error="insufficient_scope", scope="${scope}"`;

  test('AC-A17 each get a hint with their own scopes, and the next login asks for all of these scopes', async () => {
    const { recovery, refused, store, row } = setup(async () => tokens('x'));
    const refusals = ['one', 'two', 'one'].map((scope) => refused('scope', challenge(scope)));
    const limits = { deadlineAtMs: Number.MAX_SAFE_INTEGER };
    expect(await Promise.all(refusals.map((each) => recovery.recover(each, limits)))).toEqual(Array(3).fill('refused'));
    expect(refusals.map((each) => recovery.explain(each).hint)).toEqual(
      ['one', 'two', 'one'].map((scope) => `the call needs the scopes ${scope}: run: hostler login docs`),
    );
    expect(store.readGrant(row.id)?.wanted).toEqual(['a', 'one', 'two']);
  });

  test('AC-A17 and a third call whose challenge names no scopes: its hint says so', async () => {
    const { recovery, refused } = setup(async () => tokens('x'));
    const refusal = refused('scope', 'Bearer error="insufficient_scope"');
    expect(await recovery.recover(refusal, { deadlineAtMs: Number.MAX_SAFE_INTEGER })).toBe('refused');
    expect(recovery.explain(refusal)).toMatchObject({
      hint: expect.stringMatching(/^the server does not say which scopes the call needs; run: hostler login docs/),
      details: { reason: 'insufficient_scope' },
    });
  });
});

describe('AC-A20 a grant without a person that needs more scopes', () => {
  const auth = { grant: 'client_credentials', issuer: 'https://as', clientId: 'job', clientSecret: 'secret' };
  const challenge = (scope: string) => `Bearer error="insufficient_scope", scope="${scope}"`;
  const limits = { deadlineAtMs: Number.MAX_SAFE_INTEGER };

  test('AC-A20 sends the requests of two calls one after the other, and the last token has the scopes of both', async () => {
    const asked: string[] = [];
    let running = 0;
    const { recovery, refused, store, row } = setup(
      async () => tokens('x'),
      auth,
      async (scopes) => {
        asked.push(scopes.join(' '));
        expect(++running).toBe(1);
        await new Promise<void>((resolve) => setImmediate(resolve));
        running--;
      },
    );
    const refusals = ['one', 'two', 'one'].map((scope) => refused('scope', challenge(scope)));
    expect(await Promise.all(refusals.map((each) => recovery.recover(each, limits)))).toEqual(Array(3).fill('renewed'));
    expect(asked).toEqual(['a one', 'a one two']);
    expect(store.readGrant(row.id)?.scopes).toEqual(['a', 'one', 'two']);
  });

  test('AC-A20 auth.scopesMax also limits the first token and the scopes of later ones', async () => {
    const asked: string[] = [];
    const limited = (more: object, refusal: TokenAnswer = { kind: 'refused', error: 'invalid_grant' }) =>
      setup(
        async () => refusal,
        { ...auth, scopesMax: ['one', 'two'], ...more },
        async (scopes) => void asked.push(scopes.join(' ')),
      );
    const outcome = async ({ recovery, refused }: ReturnType<typeof setup>, kind: 'token' | 'scope', scope: string) => {
      const refusal = refused(kind, challenge(scope));
      const ended = await recovery.recover(refusal, limits);
      return ended === 'refused' ? recovery.explain(refusal).details.reason : ended;
    };
    expect(await outcome(limited({}), 'token', 'one admin')).toBe('scope_ceiling');
    expect(asked).toEqual([]);
    expect(await outcome(limited({}), 'token', 'one')).toBe('renewed');
    expect(await outcome(limited({ scopes: ['two', 'other'] }), 'token', 'admin')).toBe('renewed');
    // The token has the scope `a`, which `scopesMax` does not allow.
    expect(await outcome(limited({}), 'scope', 'one')).toBe('renewed');
    expect(asked).toEqual(['one', 'two', 'one']);
  });

  test('AC-A20 sends at most 4 requests in 10 s, and 20 in an hour, if each call is asked for another scope', async () => {
    const asked: number[] = [];
    const { clock, recovery, refused, provider } = setup(
      async () => tokens('x'),
      auth,
      async () => void asked.push(clock.nowMs()),
    );
    let count = 0;
    const hour = async () => {
      for (let call = 0; call < 720; call++) {
        await provider.recover(recovery.current(), {
          ...{ kind: 'scope', challenge: challenge(`s${++count}`), signal: new AbortController().signal },
          ...limits,
        });
        clock.advance(call < 360 ? 100 : 9_900);
      }
    };
    await hour();
    expect(asked.filter((atMs) => atMs < 10_000)).toHaveLength(4);
    expect(asked).toHaveLength(20);
    const last = refused('scope', challenge(`s${count}`));
    expect(recovery.explain(last)).toMatchObject({
      hint: 'the server asks for other scopes too often; tell its operator',
      details: { reason: 'scope_denied' },
    });
  });
});
