import { rmSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import { memoryFolder } from '../../test/memory-folder.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { type Random, seededRandom } from '../kernel/random.js';
import { Grant, type GrantParts } from './grant.js';
import type { RegistrationWay } from './grant-row.js';
import type { IdentityStore } from './identity-store.js';
import { openStore } from './open-store.js';
import { refreshAtMs, retryDelayMs, retryWaitMs } from './refresh-timing.js';
import { readTokenAnswer, type TokenAnswer } from './token-endpoint.js';

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const half: Random = () => 0.5;
const ok = (access: string, change = {}): TokenAnswer => ({
  kind: 'tokens',
  accessToken: access,
  refreshToken: `${access}-refresh`,
  expiresInS: 3_600,
  scope: undefined,
  idToken: undefined,
  ...change,
});
const refused = (error: string): TokenAnswer => ({ kind: 'refused', error: error as 'invalid_grant' });
const down = (isSent = false, retryAfterMs?: number): TokenAnswer => ({
  kind: 'unavailable',
  reason: 'status_503',
  isSent,
  retryAfterMs,
});

function setup(
  answer: () => TokenAnswer,
  lifetimeS: number | undefined = 3_600,
  isOwn = false,
  way: RegistrationWay = 'registered',
) {
  const folder = memoryFolder('hostler-grant-');
  folders.push(folder);
  const clock = new FakeClock();
  const store = openStore({ folder, onProblem: () => {} });
  const nowMs = clock.date().getTime();
  const row = store.saveLogin({
    ...{ url: 'https://s', resource: 'https://s', issuer: 'https://as', clientId: 'c', account: '' },
    ...{ accessToken: 'first', refreshToken: isOwn ? undefined : 'first-refresh', scopes: ['a'] },
    issuedMs: nowMs,
    expiresMs: lifetimeS === undefined ? undefined : nowMs + lifetimeS * 1_000,
    facts: {
      grantType: isOwn ? 'client_credentials' : 'code',
      tokenEndpoint: 'https://as/t',
      authMethod: 'none',
      way,
      loginMs: 1,
      asked: [],
    },
  });
  /** Methods that fail, as with a full disk. */
  const failing = new Set<keyof IdentityStore>();
  const faulty = new Proxy(store, {
    get(target, name: keyof IdentityStore) {
      if (failing.has(name)) throw new Error('the disk is full');
      const value: unknown = target[name];
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const problems: unknown[] = [];
  const requests: { readonly refreshToken: string | undefined; readonly atMs: number }[] = [];
  const revoked: unknown[] = [];
  const known = new Set<string>();
  const parts: GrantParts = {
    store: faulty,
    clock,
    random: half,
    request: async ({ refreshToken }) => {
      requests.push({ refreshToken, atMs: clock.nowMs() });
      return answer();
    },
    revoke: async (_row, { accessToken, refreshToken }) => revoked.push([accessToken, refreshToken]),
    secrets: { know: (value) => known.add(value), forget: (value) => known.delete(value) },
    onChange: () => {},
    onRefresh: () => {},
    onProblem: (error) => problems.push(error),
  };
  const grant = new Grant(row, parts);
  return { clock, store, row, grant, requests, revoked, known, failing, problems };
}

describe('AC-A14 the time of a refresh', () => {
  test('AC-A14 10,000 lifetimes from a minute to 30 days: each refresh is inside its window', () => {
    const random = seededRandom(14);
    for (let life = 0; life < 10_000; life++) {
      const lifetimeMs = 60_000 * (1 + random() ** 4 * 43_199);
      const marginMs = lifetimeMs - (refreshAtMs(0, lifetimeMs, random) ?? 0);
      if (lifetimeMs <= 120_000) expect(marginMs).toBeLessThanOrEqual(lifetimeMs / 4);
      const wantedMs = Math.max(60_000, Math.min(lifetimeMs / 10, 300_000));
      expect(marginMs).toBeGreaterThan(0);
      if (lifetimeMs > 120_000) expect(Math.abs(marginMs - wantedMs)).toBeLessThanOrEqual(0.2 * wantedMs + 1);
    }
    expect(refreshAtMs(0, undefined, random)).toBeUndefined();
  });

  test('AC-A14 a token in use is refreshed before it ends; an unused one by its next use, or after a day', async () => {
    let count = 0;
    const { clock, grant, requests } = setup(() => ok(`token-${++count}`));
    grant.token();
    await clock.advanceAsync(3_299_000);
    expect(requests).toHaveLength(0);
    await clock.advanceAsync(2_000);
    expect(requests.map(({ refreshToken }) => refreshToken)).toEqual(['first-refresh']);
    expect(grant.token()?.header[1]).toBe('Bearer token-1');
    await clock.advanceAsync(3_600_000);
    const before = requests.length;
    await clock.advanceAsync(20 * 3_600_000);
    expect(requests.length - before).toBeLessThanOrEqual(1);
    grant.token();
    await clock.advanceAsync(100);
    expect(requests.length).toBeGreaterThan(before);
  });

  test('AC-A14 an authorization server that refuses an early refresh costs nothing: the live token is used', async () => {
    const { clock, grant, requests } = setup(() => refused('invalid_request'));
    grant.token();
    await clock.advanceAsync(3_310_000);
    expect(requests.length).toBeGreaterThan(0);
    expect([grant.token()?.header[1], grant.row.state]).toEqual(['Bearer first', 'live']);
  });

  test.each([
    ['sends no request ahead of time', true, 1],
    ['sends its own request after a refusal', false, 2],
  ])(
    'AC-A12 another process refreshes and gets the same access token: this process waits, and %s',
    async (_when, isAhead, sent) => {
      const { clock, grant, store, row, requests } = setup(() => ok('first'));
      const leased = store.takeLease(row, 'other', clock.date().getTime(), () => false);
      requests.push({ refreshToken: row.refreshToken, atMs: clock.nowMs() });
      const waiting = grant.refresh(isAhead);
      await clock.advanceAsync(1_000);
      if (leased) store.advance(leased, { ...row, refreshToken: 'second-refresh' }, row.facts);
      await clock.advanceAsync(1_000);
      expect(await waiting).toBe('renewed');
      expect(requests).toHaveLength(sent);
    },
  );

  test('a new token has the grant of its login; an answer without a refresh token keeps the old one', async () => {
    const { grant, store, row } = setup(() => ok('second', { refreshToken: undefined, scope: 'a b' }));
    const { grant: name } = grant.token() ?? {};
    expect(await grant.refresh()).toBe('renewed');
    expect(grant.token()?.grant).toBe(name);
    expect(store.readGrant(row.id)).toMatchObject({ gen: 2, refreshToken: 'first-refresh', scopes: ['a', 'b'] });
  });
});

describe('AC-A15 what the answers mean', () => {
  test('AC-A15 an hour of failures ends no grant, and in the end at most one request is sent in five minutes', async () => {
    const answers = [down(), down(true), down(false, 1_000), down()];
    let count = 0;
    let isDown = true;
    const { clock, grant, requests } = setup(() => (isDown ? (answers[count++ % 4] as TokenAnswer) : ok('healed')));
    for (let minute = 0; minute < 60; minute++) {
      await expect(grant.refresh()).rejects.toMatchObject({
        code: 'reconnecting',
        details: { retryAfterMs: expect.any(Number) },
      });
      await clock.advanceAsync(60_000);
    }
    expect(grant.row.state).toBe('live');
    const late = requests.filter(({ atMs }) => atMs > 30 * 60_000).map(({ atMs }) => atMs);
    for (const [at, each] of late.slice(1).entries()) expect(each - (late[at] ?? 0)).toBeGreaterThanOrEqual(239_000);
    isDown = false;
    grant.token();
    await clock.advanceAsync(6 * 60_000);
    expect(grant.token()?.header[1]).toBe('Bearer healed');
  });

  test.each([
    ['invalid_grant', 'grant_revoked'],
    ['invalid_client', 'client_gone'],
    ['unauthorized_client', 'client_gone'],
    ['invalid_client', 'client_gone', 'metadata_document'],
  ] as const)(
    'AC-A15 after %s the grant is stored as dead with the reason %s, and no further request is sent',
    async (word, reason, way?) => {
      const { clock, grant, store, row, requests } = setup(() => refused(word), 3_600, false, way);
      expect(await grant.refresh()).toBe('dead');
      expect(store.readGrant(row.id)).toMatchObject({ state: 'dead', reason, refreshToken: 'first-refresh' });
      for (let again = 0; again < 100; again++) expect(await grant.refresh()).toBe('dead');
      expect(requests).toHaveLength(1);
      await clock.advanceAsync(3_600_000);
      expect(requests).toHaveLength(1);
    },
  );

  test('AC-A15 invalid_grant after a request without an answer is refresh_interrupted', async () => {
    const answers = [down(true), refused('invalid_grant')];
    const { clock, grant } = setup(() => answers.shift() as TokenAnswer);
    await expect(grant.refresh()).rejects.toMatchObject({ code: 'reconnecting' });
    await clock.advanceAsync(5_000);
    expect([await grant.refresh(), grant.row.reason]).toEqual(['dead', 'refresh_interrupted']);
  });

  test('AC-A15 invalid_grant after another process was faster does not end the grant: the token of that process is used', async () => {
    const world = setup(() => {
      world.store.advance(world.row, { ...world.row, accessToken: 'of-another-process' }, world.row.facts);
      return refused('invalid_grant');
    });
    expect(await world.grant.refresh()).toBe('renewed');
    expect(world.grant.token()?.header[1]).toBe('Bearer of-another-process');
  });

  test('AC-A15 other refusals end a grant after ten minutes and at least three of them, if its token has ended', async () => {
    const { clock, grant } = setup(() => refused('other'), 60);
    const results: unknown[] = [];
    for (let minute = 0; minute < 14; minute++) {
      results.push(await grant.refresh().catch((error: { code: string }) => error.code));
      await clock.advanceAsync(60_000);
    }
    expect(results[0]).toBe('reconnecting');
    expect([results.at(-1), grant.row.reason]).toEqual(['dead', 'grant_refused']);
    expect(results.indexOf('dead')).toBeGreaterThanOrEqual(10);
  });

  test('AC-A13 a new refresh token is stored even if the access token beside it is unusable', async () => {
    const answers = [ok('', { refreshToken: 'rotated' }), ok('good')];
    const { clock, grant, store, row, requests } = setup(() => answers.shift() as TokenAnswer);
    await expect(grant.refresh()).rejects.toMatchObject({ code: 'reconnecting' });
    expect(store.readGrant(row.id)).toMatchObject({ refreshToken: 'rotated', accessToken: 'first' });
    expect(grant.peek()?.header[1]).toBe('Bearer first');
    // Calls do not repeat the request at once.
    for (let calls = 0; calls < 100; calls++)
      await expect(grant.refresh()).rejects.toMatchObject({ code: 'reconnecting' });
    expect(requests).toHaveLength(1);
    await clock.advanceAsync(3_000);
    expect(await grant.refresh()).toBe('renewed');
    expect(requests.at(-1)?.refreshToken).toBe('rotated');
  });

  test('a token that the disk refuses is used, stored later, and never replaced by the previous token', async () => {
    let count = 0;
    const { clock, grant, store, row, requests, failing } = setup(() => ok(`token-${++count}`));
    failing.add('advance');
    const refreshing = grant.refresh();
    await clock.advanceAsync(21_000);
    expect(await refreshing).toBe('renewed');
    for (let looks = 0; looks < 10; looks++) {
      expect(grant.reload()).toBe(false);
      expect([grant.peek()?.header[1], grant.row.refreshToken]).toEqual(['Bearer token-1', 'token-1-refresh']);
      // No other token is requested before this one is stored.
      await expect(grant.refresh()).rejects.toMatchObject({ code: 'reconnecting' });
      await clock.advanceAsync(1_000);
    }
    expect([requests.length, store.readGrant(row.id)?.refreshToken]).toEqual([1, 'first-refresh']);
    failing.clear();
    await clock.advanceAsync(3_000);
    expect(store.readGrant(row.id)).toMatchObject({ gen: 2, refreshToken: 'token-1-refresh' });
    expect(await grant.refresh()).toBe('renewed');
    expect(requests.map(({ refreshToken }) => refreshToken)).toEqual(['first-refresh', 'token-1-refresh']);
  });

  test('a token that could not be stored gives way to a login in another process; otherwise it is stored when the host ends', async () => {
    const world = async () => {
      const each = setup(() => ok('second'));
      each.failing.add('advance');
      const refreshing = each.grant.refresh();
      await each.clock.advanceAsync(21_000);
      await refreshing;
      return each;
    };
    const login = await world();
    const { accessToken: _a, ...facts } = login.row;
    login.store.saveLogin({ ...facts, url: 'https://s', accessToken: 'of-the-login' });
    expect([login.grant.reload(), login.grant.token()?.header[1]]).toEqual([true, 'Bearer of-the-login']);
    const { grant, failing, store, row } = await world();
    failing.clear();
    grant.close();
    expect(store.readGrant(row.id)?.refreshToken).toBe('second-refresh');
  });

  test('if the disk refuses the lease, no login is asked for, and the refresh is tried again by itself', async () => {
    const { clock, grant, failing, problems, requests } = setup(() => ok('second'));
    grant.token();
    failing.add('takeLease');
    await expect(grant.refresh()).rejects.toMatchObject({ code: 'reconnecting', details: { reason: 'auth_server' } });
    expect([problems.length, requests.length]).toEqual([1, 0]);
    failing.clear();
    await clock.advanceAsync(3_000);
    expect(grant.token()?.header[1]).toBe('Bearer second');
  });

  test('after the lease of another process, and after the wait that it stored, the refresh is tried again', async () => {
    const { clock, grant, store, row, requests } = setup(() => ok('second'));
    const note = { failures: 1, refusedMs: undefined, isInterrupted: false, lastError: { reason: 'x', atMs: 1 } };
    grant.token();
    store.takeLease(row, 'other', clock.date().getTime(), () => false);
    const waiting = grant.refresh().catch((error: unknown) => error);
    await clock.advanceAsync(16_000);
    expect(await waiting).toMatchObject({ code: 'reconnecting' });
    store.noteFailure(row, 'other', { ...note, retryMs: clock.date().getTime() + 60_000 });
    await expect(grant.refresh()).rejects.toMatchObject({ details: { retryAfterMs: 60_000 } });
    await clock.advanceAsync(59_000);
    expect(requests).toHaveLength(0);
    await clock.advanceAsync(2_000);
    expect([requests.length, grant.token()?.header[1]]).toEqual([1, 'Bearer second']);
  });

  test('AC-A15 a wait that was stored before the clock was set back does not block the grant', async () => {
    const yearMs = 365 * 86_400_000;
    const { clock, grant, store, row, requests } = setup(() => ok('second'));
    store.takeLease(row, 'other', clock.date().getTime(), () => false);
    store.noteFailure(row, 'other', {
      ...{ failures: 1, refusedMs: undefined, isInterrupted: false, lastError: { reason: 'x', atMs: 1 } },
      retryMs: clock.date().getTime() + yearMs,
    });
    expect([await grant.refresh(), requests.length]).toEqual(['renewed', 1]);
  });

  test('AC-A15 a refused client is asked for again after a minute, also if the clock was set back', async () => {
    const answers = [refused('invalid_client'), ok('second')];
    const { clock, grant, requests } = setup(() => answers.shift() as TokenAnswer, 3_600, false, 'configured');
    expect(await grant.refresh()).toBe('client_refused');
    clock.jumpWall(-365 * 86_400_000);
    await clock.advanceAsync(61_000);
    expect([await grant.refresh(), requests.length]).toEqual(['renewed', 2]);
  });

  test('an answer that comes after another process has marked the grant as dead revives it', async () => {
    let finish: (answer: TokenAnswer) => void = () => {};
    const world = setup(() => new Promise((resolve) => (finish = resolve)) as unknown as TokenAnswer);
    const { clock, grant, store, row } = world;
    const refreshing = grant.refresh();
    await clock.advanceAsync(130_000);
    const { accessToken } = row;
    expect(store.takeLease(row, 'other', clock.date().getTime(), () => false)).toBeDefined();
    expect(store.markDead(row, 'other', 'refresh_interrupted', 1)).toBe(true);
    finish(ok('second'));
    expect([await refreshing, grant.token()?.header[1], accessToken]).toEqual(['renewed', 'Bearer second', 'first']);
    expect(grant.row).toMatchObject({ state: 'live', reason: undefined });
  });

  test('a refusal of a spent token does not end the grant while another process has the lease', async () => {
    let finish: (answer: TokenAnswer) => void = () => {};
    const { clock, grant, store, row } = setup(
      () => new Promise((resolve) => (finish = resolve)) as unknown as TokenAnswer,
    );
    const refreshing = grant.refresh();
    await clock.advanceAsync(130_000);
    store.takeLease(row, 'other', clock.date().getTime(), () => false);
    finish(refused('invalid_grant'));
    await expect(refreshing).rejects.toMatchObject({ code: 'reconnecting' });
    expect(store.readGrant(row.id)?.state).toBe('live');
  });

  test('a configured client that is refused ends no grant: other processes and the next minute may have the right secret', async () => {
    const answers = [refused('invalid_client'), ok('second')];
    const { clock, grant, store, row, requests } = setup(
      () => answers.shift() as TokenAnswer,
      3_600,
      false,
      'configured',
    );
    grant.token();
    for (let calls = 0; calls < 100; calls++) expect(await grant.refresh()).toBe('client_refused');
    expect([requests.length, grant.token()?.header[1]]).toEqual([1, 'Bearer first']);
    expect(store.readGrant(row.id)).toMatchObject({
      state: 'live',
      failures: 0,
      retryMs: 0,
      refreshToken: 'first-refresh',
    });
    expect(store.takeLease(row, 'other', 0, () => false)).toBeDefined();
    store.noteFailure(row, 'other', { ...row, lastError: { reason: 'x', atMs: 1 } });
    await clock.advanceAsync(61_000);
    expect([requests.length, grant.token()?.header[1]]).toEqual([2, 'Bearer second']);
  });

  test('AC-A13 an answer without any token keeps the live access token; its request may have used the refresh token', async () => {
    const answers = [ok('', { refreshToken: undefined }), refused('invalid_grant')];
    const { clock, grant, store, row } = setup(() => answers.shift() as TokenAnswer);
    await expect(grant.refresh()).rejects.toMatchObject({ code: 'reconnecting' });
    expect(grant.token()?.header[1]).toBe('Bearer first');
    expect(store.readGrant(row.id)).toMatchObject({ gen: 1, accessToken: 'first', isInterrupted: true, failures: 1 });
    await clock.advanceAsync(5_000);
    expect(store.readGrant(row.id)).toMatchObject({ state: 'dead', reason: 'refresh_interrupted' });
  });

  test('a logout of another process ends the use of the token', () => {
    const { grant, store, row } = setup(() => ok('x'));
    store.removeGrant(row.id);
    grant.reload();
    expect([grant.token(), grant.row.state]).toEqual([undefined, 'dead']);
  });

  test('AC-A26 tokens that arrive after a logout are revoked once, and not used', async () => {
    const world = setup(() => {
      world.store.removeGrant(world.row.id);
      return ok('second');
    });
    await world.grant.refresh().catch(() => {});
    expect([world.revoked, world.grant.token()]).toEqual([[['second', 'second-refresh']], undefined]);
    expect([await world.grant.refresh(), world.requests.length, world.revoked.length]).toEqual(['dead', 1, 1]);
  });

  test('AC-A26 tokens that the disk refused until a logout are revoked', async () => {
    const { clock, grant, store, row, failing, revoked } = setup(() => ok('second'));
    failing.add('advance');
    const refreshing = grant.refresh();
    await clock.advanceAsync(21_000);
    await refreshing;
    store.removeGrant(row.id);
    failing.clear();
    await clock.advanceAsync(10_000);
    expect([grant.reload(), revoked]).toEqual([false, [['second', 'second-refresh']]]);
  });

  test.each(['login', 'refresh'] as const)('tokens that arrive after another %s are not revoked', async (which) => {
    const world = setup(() => {
      const { store, row } = world;
      if (which === 'login') store.saveLogin({ ...row, url: 'https://s', accessToken: 'newer' });
      else store.advance(row, { ...row, accessToken: 'newer' }, row.facts);
      return ok('second');
    });
    await world.grant.refresh();
    expect([world.grant.token()?.header[1], world.revoked]).toEqual(['Bearer newer', []]);
  });

  test('tokens are known to the redactor before their use, and forgotten after some newer tokens', async () => {
    let count = 0;
    const { grant, known } = setup(() => ok(`token-${++count}`));
    for (let refreshes = 0; refreshes < 10; refreshes++) await grant.refresh();
    expect([known.has('token-10'), known.has('token-10-refresh'), known.has('token-1'), known.size <= 8]).toEqual([
      true,
      true,
      false,
      true,
    ]);
  });
});

test('AC-A20 a token of client_credentials is renewed ahead of time: no call of a day has an expired token', async () => {
  for (const lifetimeS of [60, 90, 300, 3_600, 40_000]) {
    let issued = 0;
    const world = setup(
      () => ok(`token-${++issued}`, { refreshToken: undefined, expiresInS: lifetimeS }),
      lifetimeS,
      true,
    );
    const { clock, grant, requests } = world;
    const endsAtMs = new Map([['Bearer first', lifetimeS * 1_000]]);
    // Six calls in a life, and at least one in a minute.
    const pauseS = Math.min(60, lifetimeS / 6);
    for (let atS = 0; atS < 86_400; atS += pauseS) {
      const header = grant.token()?.header[1] ?? '-';
      if (!endsAtMs.has(header)) endsAtMs.set(header, (requests.at(-1)?.atMs ?? 0) + lifetimeS * 1_000);
      expect(endsAtMs.get(header)).toBeGreaterThan(clock.nowMs());
      await clock.advanceAsync(pauseS * 1_000);
    }
    // Nor is a token requested much more often than needed.
    expect(requests.length).toBeLessThanOrEqual(Math.ceil((86_400 / lifetimeS) * 1.6));
    grant.close();
  }
});

test.each([
  [
    200,
    '{"access_token":"a","token_type":"Bearer","expires_in":"60"}',
    { kind: 'tokens', accessToken: 'a', expiresInS: 60 },
  ],
  [200, '{"access_token":"a","token_type":"bearer","expires_in":-1}', { kind: 'tokens', expiresInS: undefined }],
  [200, '{"access_token":"a b","token_type":"Bearer","refresh_token":"r"}', { accessToken: '', refreshToken: 'r' }],
  [200, '{"error":"bad_refresh_token","error_description":"PLANTED"}', { kind: 'refused', error: 'other' }],
  [200, '{"error":"invalid_grant"}', { kind: 'refused', error: 'invalid_grant' }],
  [200, '{"error":"x","access_token":"a","token_type":"Bearer"}', { kind: 'tokens', accessToken: 'a' }],
  [200, '{}', { kind: 'tokens', accessToken: '', refreshToken: undefined }],
  [200, '<html>', { kind: 'unavailable', isSent: true }],
  [400, '{"error":"invalid_grant"}', { kind: 'refused', error: 'invalid_grant' }],
  [401, '{"error":"PLANTED <b>"}', { kind: 'refused', error: 'other' }],
  [400, '<html>', { kind: 'unavailable', isSent: false }],
  [403, '{"error":"invalid_grant"}', { kind: 'unavailable', reason: 'status_403' }],
  [429, '', { kind: 'unavailable', retryAfterMs: 7_000 }],
  [502, '', { kind: 'unavailable', isSent: true }],
  [302, '', { kind: 'unavailable' }],
])('an answer with status %i and body %s is read as %j', (status, body, answer) => {
  const headers = { 'retry-after': '7' };
  expect(readTokenAnswer({ status, headers, body: Buffer.from(body) }, new Date())).toMatchObject(answer);
});

test('retries wait 2 s, then twice as long each time, up to five minutes; a longer Retry-After has priority', () => {
  expect([1, 2, 3, 9, 100].map((failures) => retryDelayMs(failures, undefined, half))).toEqual([
    ...[2_000, 4_000, 8_000, 300_000, 300_000],
  ]);
  expect(retryDelayMs(1, 60_000, half)).toBe(60_000);
});

test('a wait up to the longest possible delay is kept; a longer wait, and one that is over, becomes 0', () => {
  const longestMs = Math.ceil(retryDelayMs(100, undefined, () => 0.999_999_9));
  expect([longestMs, retryWaitMs(longestMs, 0), retryWaitMs(longestMs + 1, 0), retryWaitMs(5, 7)]).toEqual([
    ...[360_000, 360_000, 0, 0],
  ]);
});
