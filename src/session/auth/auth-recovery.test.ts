import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { bearer, FakeAuthProvider } from '../../../test/fakes/auth-provider.js';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { type AuthToken, type RefusalKind, TokenRefused, tokenHash } from '../../transports/http/auth-token.js';
import { staticHeaderProvider } from './auth-provider.js';
import { AuthRecovery, type AuthRecoveryOptions, type RecoveryOutcome } from './auth-recovery.js';

const farMs = 1_000_000;
const one = bearer('first-token');
const two = bearer('second-token');
const three = bearer('third-token');

function refusal(sent: AuthToken | undefined, kind: RefusalKind = 'token'): TokenRefused {
  return new TokenRefused(
    "server 's' requires authorization (401)",
    { server: 's' },
    { kind, sent, challenge: 'Bearer' },
  );
}

function setup(token: AuthToken | undefined = one, options: Partial<AuthRecoveryOptions> = {}) {
  const clock = new FakeClock();
  const provider = new FakeAuthProvider(token);
  const known = new Set<string>();
  const problems: unknown[] = [];
  const secrets = { know: (value: string) => known.add(value), forget: (value: string) => known.delete(value) };
  const onProblem = (error: unknown) => problems.push(error);
  const recovery = new AuthRecovery({ server: 's', provider, clock, secrets, onProblem, ...options });
  const ask = (sent: AuthToken | undefined, kind?: RefusalKind) =>
    recovery.recover(refusal(sent, kind), { deadlineAtMs: farMs });
  return { clock, provider, recovery, known, problems, ask };
}

const fail = (message: string): never => {
  throw new Error(message);
};

/** A recovery that ends when the test says so. */
function held(provider: FakeAuthProvider): (token: AuthToken | undefined) => void {
  let end: (token: AuthToken | undefined) => void = () => {};
  provider.onRecover = () =>
    new Promise((resolve) => {
      end = (token) => {
        if (token) provider.token = token;
        resolve(token !== undefined);
      };
    });
  return (token) => end(token);
}

const outcomes = (all: Promise<RecoveryOutcome>[]) => Promise.all(all).then((each) => [...new Set(each)]);

/** Waits until all settled promises have been reported. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('the reported status of the tokens', () => {
  test('is one `needed` and one result for each attempt, for any number of callers', async () => {
    const told: string[] = [];
    const { provider, ask } = setup(one, { onOutcome: (status) => told.push(status) });
    const end = held(provider);
    const all = Array.from({ length: 5 }, () => ask(one));
    expect(told).toEqual(['needed']);
    end(two);
    await outcomes(all);
    expect(told).toEqual(['needed', 'recovered']);
  });

  test('is a failure once, also during the pause, and then once a token from another source', async () => {
    const told: string[] = [];
    const { provider, ask, recovery } = setup(one, { onOutcome: (status) => told.push(status) });
    expect([await ask(one), await ask(one)]).toEqual(['refused', 'refused']);
    expect(told).toEqual(['needed', 'failed']);
    provider.login(undefined);
    expect(told).toHaveLength(2);
    provider.login(two);
    provider.login(three);
    recovery.current();
    expect(told).toEqual(['needed', 'failed', 'recovered']);
  });

  test('is a failure for an attempt that takes too long, and then the later result of the attempt', async () => {
    const told: string[] = [];
    const { provider, ask, clock, recovery } = setup(one, { onOutcome: (status) => told.push(status) });
    const end = held(provider);
    const asked = ask(one);
    clock.advance(15_000);
    expect([await asked, told]).toEqual(['refused', ['needed', 'failed']]);
    end(two);
    await settle();
    expect([recovery.current(), told]).toEqual([two, ['needed', 'failed', 'recovered']]);
  });

  test('is not reported after the server is removed', async () => {
    const told: string[] = [];
    const { provider, ask, recovery } = setup(one, { onOutcome: (status) => told.push(status) });
    held(provider);
    const asked = ask(one);
    recovery.close();
    expect([await asked, told]).toEqual(['renewed', ['needed']]);
  });
});

describe('the account at the server', () => {
  test.each([
    ['ada', 'ada'],
    ['', undefined],
    [7, undefined],
    [undefined, undefined],
  ])('%j is shown as %s', (said, identity) => {
    const { provider, recovery } = setup();
    expect(recovery.identity()).toBeUndefined();
    provider.identity = () => said as string;
    expect(recovery.identity()).toBe(identity);
  });

  test('a provider that throws is reported, and no account is shown', () => {
    const { provider, recovery, problems } = setup();
    provider.identity = () => {
      throw new Error('gone');
    };
    expect([recovery.identity(), problems]).toEqual([undefined, [new Error('gone')]]);
  });
});

describe('one renewal for all requests', () => {
  test('D-38 50 requests refused for the same token at the same time cause one recovery, and all may be sent again', async () => {
    const { provider, ask } = setup();
    const end = held(provider);
    const all = Array.from({ length: 50 }, () => ask(one));
    expect(provider.recoveries).toHaveLength(1);
    expect(provider.recoveries[0]).toMatchObject({ failed: one, context: { kind: 'token', challenge: 'Bearer' } });
    end(two);
    expect(await outcomes(all)).toEqual(['renewed']);
    expect(provider.recoveries).toHaveLength(1);
  });

  test('D-38 a request that is refused late, with an older token, is sent again at once, without a recovery', async () => {
    const { provider, ask } = setup();
    held(provider);
    provider.login(two);
    expect(await ask(one)).toBe('renewed');
    expect(provider.recoveries).toHaveLength(0);
  });

  test('D-38 the caller that began it may leave: the others still get its result', async () => {
    const { provider, recovery, ask, clock } = setup();
    const end = held(provider);
    const leaving = new AbortController();
    const first = recovery.recover(refusal(one), { deadlineAtMs: farMs, signal: leaving.signal });
    const hasty = recovery.recover(refusal(one), { deadlineAtMs: 100 });
    const patient = ask(one);
    leaving.abort();
    clock.advance(100);
    expect(await first).toBe('cancelled');
    expect(await hasty).toBe('late');
    expect(provider.recoveries[0]?.context.signal.aborted).toBe(false);
    end(two);
    expect(await patient).toBe('renewed');
    expect(provider.recoveries).toHaveLength(1);
    expect(clock.pendingTimers).toBe(0);
  });

  test('D-38 all share a failure too', async () => {
    const { provider, ask } = setup();
    const end = held(provider);
    const all = Array.from({ length: 50 }, () => ask(one));
    end(undefined);
    expect(await outcomes(all)).toEqual(['refused']);
  });

  test('a caller that is already cancelled begins no recovery', async () => {
    const { provider, recovery } = setup();
    const limits = { deadlineAtMs: farMs, signal: AbortSignal.abort() };
    expect(await recovery.recover(refusal(one), limits)).toBe('cancelled');
    expect(provider.recoveries).toHaveLength(0);
  });

  test('a login during the recovery has the same effect as its success', async () => {
    const { provider, ask } = setup();
    const end = held(provider);
    const waiting = ask(one);
    provider.login(two);
    expect(await waiting).toBe('renewed');
    expect(provider.recoveries[0]?.context.signal.aborted).toBe(true);
    end(undefined);
    await settle();
    expect(await ask(one)).toBe('renewed');
  });
});

describe('no storm of recoveries', () => {
  test.each([
    ['refuses', () => Promise.resolve(false)],
    ['rejects', () => Promise.reject(new Error('no network'))],
    [
      'throws',
      () => {
        throw new Error('a bug');
      },
    ],
    ['claims success and has the same token', () => Promise.resolve(true)],
  ])('D-38 after a recovery that %s, the token is not tried again before a pause', async (_how, onRecover) => {
    const { provider, ask, clock } = setup(one, { pauseMs: 1_000 });
    provider.onRecover = onRecover;
    expect(await ask(one)).toBe('refused');
    for (let i = 0; i < 100; i++) expect(await ask(one)).toBe('refused');
    clock.advance(999);
    expect(await ask(one)).toBe('refused');
    expect(provider.recoveries).toHaveLength(1);
    clock.advance(1);
    expect(await ask(one)).toBe('refused');
    expect(provider.recoveries).toHaveLength(2);
    expect(clock.pendingTimers).toBe(0);
  });

  test('D-38 a token from a recovery that is refused too causes no further recovery before the end of the pause', async () => {
    const { provider, ask, clock } = setup(one, { pauseMs: 1_000 });
    provider.onRecover = async () => {
      provider.token = two;
      return true;
    };
    expect(await ask(one)).toBe('renewed');
    expect(await ask(two)).toBe('refused');
    expect(provider.recoveries).toHaveLength(1);
    clock.advance(1_000);
    held(provider);
    void ask(two);
    expect(provider.recoveries).toHaveLength(2);
  });

  test('D-38 a renewed token that expires during the pause is renewed again, at most once a second', async () => {
    const { provider, ask, clock } = setup();
    const next = [two, three, bearer('fourth-token')];
    provider.onRecover = async () => {
      provider.token = next.shift();
      return true;
    };
    expect(await ask(one)).toBe('renewed');
    clock.advance(2_000);
    expect(await ask(two)).toBe('refused');
    provider.hasExpired = () => true;
    expect(await ask(two)).toBe('renewed');
    expect(await ask(three)).toBe('refused');
    clock.advance(1_000);
    expect(await ask(three)).toBe('renewed');
    expect(provider.recoveries).toHaveLength(3);
  });

  test('a server that keeps asking for other scopes gets 16 attempts in a pause; a refused token still gets its own attempt', async () => {
    const { provider, recovery, clock } = setup(one, { pauseMs: 1_000 });
    const ask = (scope: number) => {
      const challenge = `Bearer error="insufficient_scope", scope="s${scope}"`;
      const refused = new TokenRefused('refused', { server: 's' }, { kind: 'scope', sent: one, challenge });
      return recovery.recover(refused, { deadlineAtMs: farMs });
    };
    for (let scope = 0; scope < 100; scope++) expect(await ask(scope)).toBe('refused');
    expect(provider.recoveries).toHaveLength(16);
    await recovery.recover(refusal(one), { deadlineAtMs: farMs });
    expect(provider.recoveries.at(-1)?.context.kind).toBe('token');
    clock.advance(1_000);
    expect(await ask(99)).toBe('refused');
    expect(provider.recoveries).toHaveLength(18);
  });

  test('a new token ends the pause', async () => {
    const { provider, ask } = setup();
    expect(await ask(one)).toBe('refused');
    provider.login(two);
    expect(await ask(two)).toBe('refused');
    expect(provider.recoveries.map(({ failed }) => failed)).toEqual([one, two]);
  });

  test('a recovery has 15 s; then it counts as failed, and its later result is a new token', async () => {
    const { provider, recovery, ask, clock } = setup();
    const end = held(provider);
    let changes = 0;
    recovery.onChanged(() => changes++);
    const waiting = ask(one);
    clock.advance(14_999);
    await settle();
    expect(provider.recoveries[0]?.context.signal.aborted).toBe(false);
    expect(provider.recoveries[0]?.context.deadlineAtMs).toBe(15_000);
    clock.advance(1);
    expect(await waiting).toBe('refused');
    expect(provider.recoveries[0]?.context.signal.aborted).toBe(true);
    expect(changes).toBe(0);
    end(two);
    await settle();
    expect(changes).toBe(1);
    expect(recovery.current()).toEqual(two);
  });

  test('missing scopes and a refused token are handled separately', async () => {
    const { provider, ask } = setup();
    expect(await ask(one, 'scope')).toBe('refused');
    provider.onRecover = async () => {
      provider.token = two;
      return true;
    };
    expect(await ask(one)).toBe('renewed');
    expect(provider.recoveries.map(({ context }) => context.kind)).toEqual(['scope', 'token']);
  });

  test('after close all requests continue, no listener remains and no renewal begins', async () => {
    const { provider, recovery, ask, clock } = setup();
    held(provider);
    let changes = 0;
    recovery.onChanged(() => changes++);
    const waiting = ask(one);
    recovery.close();
    expect(await waiting).toBe('renewed');
    expect(await ask(one)).toBe('renewed');
    provider.login(two);
    expect([changes, provider.listeners.size, provider.recoveries.length, clock.pendingTimers]).toEqual([0, 0, 1, 0]);
  });
});

describe('repeating a request', () => {
  test('happens once after a renewal, and not again', async () => {
    const { provider, recovery } = setup();
    provider.onRecover = async () => {
      provider.token = two;
      return true;
    };
    const sent: (AuthToken | undefined)[] = [];
    const attempt = () => {
      const token = recovery.current();
      sent.push(token);
      return Promise.reject(refusal(token));
    };
    await expect(recovery.withRenewal({ deadlineAtMs: farMs }, attempt)).rejects.toBeInstanceOf(TokenRefused);
    expect(sent).toEqual([one, two]);
  });

  test('does not happen after any other error', async () => {
    const { provider, recovery } = setup();
    const error = new HostError('needs_reauth', 'the server is known to have no good token');
    await expect(recovery.withRenewal({ deadlineAtMs: farMs }, () => Promise.reject(error))).rejects.toBe(error);
    expect(provider.recoveries).toHaveLength(0);
  });
});

describe('AC-A20 two calls that need different scopes', () => {
  const scoped = (scope: string, sent: AuthToken | undefined) =>
    new TokenRefused(
      'refused',
      { server: 's' },
      { kind: 'scope', sent, challenge: `Bearer error="insufficient_scope", scope="${scope}"` },
    );

  test('AC-A20 the token for one call does not end the attempt for the other', async () => {
    const { provider, recovery } = setup(one);
    const ends: ((token: AuthToken) => void)[] = [];
    provider.onRecover = () =>
      new Promise((resolve) => {
        ends.push((token) => {
          provider.login(token);
          resolve(true);
        });
      });
    const settled: string[] = [];
    const waiting = ['a', 'b'].map((scope) =>
      recovery
        .recover(scoped(scope, one), { deadlineAtMs: farMs })
        .then((outcome) => settled.push(`${scope} ${outcome}`)),
    );
    ends[0]?.(two);
    await settle();
    expect(settled).toEqual(['a renewed']);
    ends[1]?.(three);
    await Promise.all(waiting);
    expect(settled).toEqual(['a renewed', 'b renewed']);
  });

  test('AC-A20 a login ends the pauses, but a token obtained for scopes does not: at most 16 sets of scopes in a pause', async () => {
    const { provider, recovery } = setup(one);
    let count = 0;
    provider.onRecover = async () => {
      provider.login(bearer(`token-${++count}`));
      return true;
    };
    const ask = () => recovery.recover(scoped(`s${Math.random()}`, recovery.current()), { deadlineAtMs: farMs });
    for (let call = 0; call < 100; call++) await ask();
    expect(provider.recoveries).toHaveLength(16);
    provider.login(three);
    await ask();
    expect(provider.recoveries).toHaveLength(17);
  });
});

describe('the tokens of a provider', () => {
  test('equal tokens are one object, so that headers are not built again', () => {
    const { provider, recovery } = setup();
    const token = recovery.current();
    provider.token = bearer('first-token');
    expect(recovery.current()).toBe(token);
    provider.token = two;
    expect(recovery.current()).toEqual(two);
  });

  test('X15 each token is known as a secret, without its scheme, before it is sent; tokens that were replaced long ago are forgotten', () => {
    const { provider, recovery, known } = setup();
    expect([...known]).toEqual(['first-token']);
    for (let i = 0; i < 100; i++) {
      provider.token = bearer(`token-number-${i}`);
      recovery.current();
      expect(known.has(`token-number-${i}`)).toBe(true);
    }
    expect([...known]).toEqual([96, 97, 98, 99].map((i) => `token-number-${i}`));
  });

  test.each([
    ['a line break in it', { header: ['authorization', 'Bearer x\r\nhost: elsewhere'] }],
    ['a header that it may not set', { header: ['host', 'elsewhere'] }],
    ['no header', {}],
    ['a number for a value', { header: ['authorization', 7] }],
  ])('a token with %s is not sent, and is reported without its value', (_what, token) => {
    const { provider, recovery, problems } = setup(three);
    provider.token = token as unknown as AuthToken;
    expect(recovery.current()).toBeUndefined();
    recovery.current();
    expect(problems).toMatchObject([{ code: 'invalid_spec', details: { server: 's' } }]);
    expect(inspect(problems)).not.toContain('elsewhere');
  });

  test('a provider that throws is reported once, and requests are sent without a token', () => {
    const { provider, recovery, problems } = setup();
    provider.current = () => {
      throw new Error('a bug');
    };
    for (let i = 0; i < 10; i++) expect(recovery.current()).toBeUndefined();
    expect(problems).toHaveLength(1);
  });

  test.each([
    ['returns nothing', () => undefined, [{ code: 'invalid_spec', details: { server: 's', field: 'onChanged' } }]],
    ['throws', () => fail('not logged in'), [{ message: 'not logged in' }]],
    ['returns a function that throws', () => () => fail('gone'), [{ message: 'gone' }]],
  ])('a provider whose onChanged %s is reported, used like any other, and released', (_what, onChanged, told) => {
    const provider = new FakeAuthProvider(one);
    provider.onChanged = onChanged as unknown as FakeAuthProvider['onChanged'];
    const { recovery, problems } = setup(one, { provider });
    expect(recovery.current()).toEqual(one);
    let changes = 0;
    recovery.onChanged(() => changes++);
    provider.token = two;
    expect([recovery.current(), changes]).toEqual([two, 1]);
    recovery.close();
    expect(problems).toMatchObject(told);
  });

  test('a provider that does not remove the listener is ignored after the server is removed', () => {
    const provider = new FakeAuthProvider(one);
    let tell = () => {};
    provider.onChanged = (listener) => {
      tell = listener;
      return () => {};
    };
    const { recovery, known } = setup(one, { provider });
    recovery.close();
    provider.token = two;
    tell();
    expect([...known]).toEqual(['first-token']);
  });

  test('a listener is called once for each change, from any source', async () => {
    const { provider, recovery, ask } = setup();
    let changes = 0;
    const off = recovery.onChanged(() => changes++);
    provider.login(two);
    recovery.current();
    expect(changes).toBe(1);
    provider.onRecover = async () => {
      provider.login(three);
      return true;
    };
    expect(await ask(two)).toBe('renewed');
    expect(changes).toBe(2);
    off();
    provider.login(one);
    expect(changes).toBe(2);
  });

  test('a configured header is a token that cannot be renewed', async () => {
    const provider = staticHeaderProvider({ 'X-Region': 'eu', Authorization: 'Bearer configured ' });
    expect(provider.current()).toEqual({ header: ['authorization', 'Bearer configured'] });
    const { recovery } = setup(one, { provider });
    expect(await recovery.recover(refusal(provider.current()), { deadlineAtMs: farMs })).toBe('refused');
    expect(staticHeaderProvider({}).current()).toBeUndefined();
  });
});

describe('E1 which tokens belong to one grant', () => {
  const of = (value: string, grant?: unknown): AuthToken => ({ ...bearer(value), grant: grant as string });

  function counted(token?: AuthToken) {
    const world = setup(token);
    let grants = 0;
    world.recovery.onNewGrant(() => grants++);
    return { ...world, grants: () => grants };
  }

  const refreshes = (provider: FakeAuthProvider, token: AuthToken, isRenewed = true) => {
    provider.onRecover = async () => {
      provider.token = token;
      return isRenewed;
    };
  };

  test.each([
    ['another token without a name of its grant', one, two, 1],
    ['the same token again', one, bearer('first-token'), 0],
    ['a refresh that names the same grant', of('a1', 'login-1'), of('a2', 'login-1'), 0],
    ['a token that names another grant', of('a1', 'login-1'), of('b1', 'login-2'), 1],
    ['the same token under another grant', of('a1', 'login-1'), of('a1', 'login-2'), 1],
    ['a token that names a grant after one that did not', one, of('a2', 'login-1'), 1],
    ['a token that names no grant any more', of('a1', 'login-1'), two, 1],
    ['an empty name, which counts as no name', of('a1', ''), of('a2', ''), 1],
    ['a name that is no text, which counts as no name', of('a1', 7), of('a2', 7), 1],
    ['no token any more', of('a1', 'login-1'), undefined, 1],
    ['the first token', undefined, of('a1', 'login-1'), 1],
  ])('E1 %s', (_what, before, after, changes) => {
    const told = counted(before);
    told.provider.login(after);
    const silent = counted(before);
    silent.provider.token = after;
    silent.recovery.current();
    silent.recovery.current();
    expect([told.grants(), silent.grants()]).toEqual([changes, changes]);
  });

  test('E1 the result of a recovery for a refused token is a refresh', async () => {
    const { provider, ask, grants, recovery } = counted(one);
    refreshes(provider, two);
    expect([await ask(one), recovery.current(), grants()]).toEqual(['renewed', two, 0]);
  });

  test.each([
    ['names another grant', of('b1', 'login-2'), 'token', true],
    ['was for more rights', two, 'scope', true],
    ['could not renew the token', two, 'token', false],
  ] as const)('E1 the result of a recovery that %s is not a refresh', async (_what, token, kind, isRenewed) => {
    const { provider, ask, grants } = counted(one);
    refreshes(provider, token, isRenewed);
    expect([await ask(one, kind), grants()]).toEqual(['renewed', 1]);
  });

  test('E1 the result of a recovery that a login has overtaken is another account', async () => {
    const { provider, ask, grants } = counted(one);
    const end = held(provider);
    const waiting = ask(one);
    provider.login(two);
    expect([await waiting, grants()]).toEqual(['renewed', 1]);
    end(three);
    await settle();
    expect(grants()).toBe(2);
  });

  test('E1 another account is reported before its token can be sent, and not after the server is removed', () => {
    const { provider, recovery } = setup(one);
    const order: string[] = [];
    recovery.onNewGrant(() => order.push('grant'));
    provider.token = two;
    order.push(recovery.current()?.header[1] ?? '');
    expect(order).toEqual(['grant', 'Bearer second-token']);
    recovery.close();
    provider.token = three;
    recovery.current();
    expect(order).toHaveLength(2);
  });
});

test('X15 a refusal shows neither the token nor its hash', () => {
  const error = refusal(one);
  expect(error.sentHash).toBe(tokenHash(one));
  for (const shown of [JSON.stringify(error), inspect(error, { showHidden: true, depth: 9 }), String(error)]) {
    expect(shown).toContain('requires authorization');
    expect(shown).not.toContain('first-token');
    expect(shown).not.toContain(tokenHash(one));
  }
});
