/**
 * A host with servers that require a token: the outcome of calls when the token expires, is renewed, cannot be renewed, or comes
 * from another process. The servers count their requests and the calls that they executed.
 */
import type { ServerResponse } from 'node:http';
import { inspect } from 'node:util';
import { afterEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostEvent } from '../../src/host/host-events.js';
import type { HostOptions } from '../../src/host/host-interface.js';
import type { Clock } from '../../src/kernel/clock.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import type { Era } from '../../src/wire/channel.js';
import { eventually } from '../eventually.js';
import { bearer, FakeAuthProvider } from '../fakes/auth-provider.js';
import { GuardedServer } from '../fakes/guarded-server.js';
import { json, result } from '../fakes/http-server.js';
import { failureOf } from './harness.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface Setup {
  readonly host: Host;
  readonly server: GuardedServer;
  readonly provider: FakeAuthProvider;
  readonly events: HostEvent[];
  readonly problems: unknown[];
  call(nonce: string, options?: Parameters<Host['call']>[3]): Promise<string>;
  row(): ReturnType<Host['status']>[number] | undefined;
}

interface Wanted {
  readonly era?: Era;
  readonly clock?: Clock;
  readonly entry?: Record<string, unknown>;
  readonly options?: HostOptions;
  readonly good?: string;
}

const first = 'first-token-a81f';
const second = 'second-token-b92e';
const third = 'third-token-c03d';

async function setup({ era = 'modern', clock, entry = {}, options = {}, good = first }: Wanted = {}): Promise<Setup> {
  const server = await new GuardedServer(era, good).start();
  closers.push(() => server.http.close());
  const provider = new FakeAuthProvider(bearer(first));
  const problems: unknown[] = [];
  const host = await createHost(
    { mcpServers: { guarded: { url: server.http.url, ...entry } } },
    {
      authProvider: () => provider,
      onProblem: (error) => problems.push(error),
      ...(clock === undefined ? {} : { clock }),
      ...options,
    },
  );
  closers.push(() => host.close());
  const events: HostEvent[] = [];
  host.on('any', (event) => events.push(event));
  return {
    host,
    server,
    provider,
    events,
    problems,
    row: () => host.status()[0],
    async call(nonce, callOptions) {
      const answer = await host.call('guarded', 'write', { nonce }, callOptions);
      return (answer.json() as { content: { text: string }[] }).content[0]?.text ?? '';
    },
  };
}

const nonces = (count: number) => Array.from({ length: count }, (_, i) => `nonce-${i}`);

const authOf = (events: readonly HostEvent[]) =>
  events.flatMap((event) => (event.kind === 'auth' ? [`${event.server} ${event.status}`] : []));

/** The token that a recovery returns. */
const brings = (provider: FakeAuthProvider, token: string) => {
  provider.onRecover = async () => {
    provider.token = bearer(token);
    return true;
  };
};

describe.each(['modern', 'legacy'] as const)('a %s server whose token expires', (era) => {
  test('D-38 under 50 calls at once: one recovery, 50 answers, nothing runs twice', async () => {
    const { server, provider, call, row, events } = await setup({ era });
    expect(await call('warm')).toBe('warm');
    server.accept(second);
    brings(provider, second);
    const all = nonces(50);
    expect(await Promise.all(all.map((nonce) => call(nonce)))).toEqual(all);
    expect(provider.recoveries).toHaveLength(1);
    expect([...server.executed].sort()).toEqual(['warm', ...all].sort());
    expect(server.refused).toBeLessThanOrEqual(50);
    expect(row()).toMatchObject({ state: 'ready', run: 1, circuit: 'closed', consecutiveFailures: 0 });
    expect(authOf(events)).toEqual(['guarded needed', 'guarded recovered']);
  });

  test('D-38 and cannot be renewed: all callers fail at once, with one recovery, and the server gets no more requests', async () => {
    const { server, provider, call, row, events } = await setup({ era });
    await call('warm');
    server.accept(second);
    const told = await Promise.all(nonces(50).map((nonce) => failureOf(call(nonce))));
    for (const error of told) {
      expect(error.toJSON()).toMatchObject({ code: 'needs_reauth', server: 'guarded', retryable: false });
      expect(error.details.execution).toBe('not_executed');
      expect(error.hint).toContain('do not repeat the call');
    }
    expect(provider.recoveries).toHaveLength(1);
    await eventually('it waits for a token', () => row()?.state === 'auth_required');
    const asked = server.requests;
    const later = await Promise.all(nonces(20).map((nonce) => failureOf(call(nonce))));
    expect(new Set(later.map(({ code }) => code))).toEqual(new Set(['needs_reauth']));
    expect(server.requests).toBe(asked);
    expect(provider.recoveries).toHaveLength(1);
    expect(server.executed).toEqual(['warm']);
    expect(row()).toMatchObject({ circuit: 'closed', consecutiveFailures: 0, restartCount: 0 });
    expect(events.filter(({ kind }) => kind === 'auth_required')).toHaveLength(1);
    expect(authOf(events)).toEqual(['guarded needed', 'guarded failed']);
  });

  test('D-38 after a login the server is connected again and the next call is served', async () => {
    const { server, provider, call, row, events } = await setup({ era });
    await call('warm');
    server.accept(third);
    await failureOf(call('refused'));
    await eventually('it waits for a token', () => row()?.state === 'auth_required');
    provider.login(bearer(third));
    expect(await call('served')).toBe('served');
    expect(server.executed).toEqual(['warm', 'served']);
    expect(row()).toMatchObject({ state: 'ready', run: 2 });
    expect(events.map(({ kind }) => kind)).toContain('revived');
    expect(authOf(events)).toEqual(['guarded needed', 'guarded failed', 'guarded recovered']);
    expect(provider.recoveries).toHaveLength(1);
  });

  test('a list of tools is read with the renewed token too', async () => {
    const { host, server, provider, call } = await setup({ era });
    await call('warm');
    server.accept(second);
    brings(provider, second);
    expect((await host.tools('guarded')).map(({ name }) => name)).toEqual(['write', 'admin']);
    expect(provider.recoveries).toHaveLength(1);
  });

  test('a refused connection starts one recovery, and is opened with its token', async () => {
    const { provider, call, row, server } = await setup({ era, good: second });
    brings(provider, second);
    expect(await call('served')).toBe('served');
    expect(provider.recoveries).toHaveLength(1);
    expect(server.refused).toBe(1);
    expect(row()).toMatchObject({ state: 'ready', run: 1, restartCount: 0 });
  });

  test('if the connection is refused with the renewed token too, the server waits for a new token without retries', async () => {
    const { provider, call, row, server } = await setup({ era, good: third });
    brings(provider, second);
    expect((await failureOf(call('refused'))).code).toBe('needs_reauth');
    await eventually('it waits for a token', () => row()?.state === 'auth_required');
    // The attempts of the server: with the old token, with the renewed one, and once more because a token came while it was connecting.
    await eventually('it has tried', () => server.refused === 3);
    expect(provider.recoveries).toHaveLength(1);
  });
});

test('D-38 a server that asks for a token only when its tools are listed is connected with the renewed one', async () => {
  const { server, provider, call, row } = await setup({ good: second });
  server.onRequest = (got, response) => {
    if (got.rpcMethod !== 'server/discover') return false;
    json(response, result(got.id, { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } }));
    return true;
  };
  brings(provider, second);
  expect(await call('served')).toBe('served');
  expect(provider.recoveries).toHaveLength(1);
  expect(row()).toMatchObject({ state: 'ready', run: 1, restartCount: 0 });
});

test('D-38 a lost session and an expired token together cause one recovery, and no strike against the server', async () => {
  const { server, provider, call, row } = await setup({ era: 'legacy' });
  await call('warm');
  server.forgetSession();
  let isSessionAsked = false;
  // The server checks the session first: it refuses the call with 404, and the opening of a new session with 401.
  server.onRequest = (got, response) => {
    if (isSessionAsked || got.rpcMethod !== 'tools/call') return false;
    isSessionAsked = true;
    server.accept(second);
    response.writeHead(404).end();
    return true;
  };
  brings(provider, second);
  // A caller that repeats calls itself: only the token prevents its answer.
  expect(await call('served', { attempt: 1 })).toBe('served');
  expect(server.executed).toEqual(['warm', 'served']);
  expect(provider.recoveries).toHaveLength(1);
  expect(row()).toMatchObject({ state: 'ready', circuit: 'closed', consecutiveFailures: 0 });
});

test('D-38 no storm: without a token the server gets the next request after five minutes, and not before', async () => {
  const clock = new FakeClock();
  const { server, provider, call, row } = await setup({ clock });
  await call('warm');
  server.accept(second);
  await failureOf(call('refused'));
  await eventually('it waits for a token', () => row()?.state === 'auth_required');
  const asked = server.requests;
  for (let second = 0; second < 299; second++) {
    clock.advance(1_000);
    await failureOf(call('impatient'));
  }
  expect(server.requests).toBe(asked);
  expect(provider.recoveries).toHaveLength(1);
  clock.advance(1_000);
  await eventually('it is asked again', () => row()?.run === 2 && row()?.state === 'auth_required');
  expect(server.requests).toBe(asked + 1);
  expect(provider.recoveries).toHaveLength(2);
});

test('D-38 a call is sent at most twice, even if there is a new token after each refusal', async () => {
  const { server, provider, call } = await setup();
  await call('warm');
  server.accept();
  let tokens = 0;
  provider.current = () => bearer(`token-number-${++tokens}`);
  expect((await failureOf(call('refused'))).code).toBe('needs_reauth');
  expect(server.http.received.filter(({ body }) => body.includes('refused'))).toHaveLength(2);
});

test('a call is charged once, however often it is sent', async () => {
  const { host, server, provider, call } = await setup();
  await call('warm');
  server.accept(second);
  brings(provider, second);
  const charged = host.withBudget({ calls: 1 }, async () => [await call('served'), await failureOf(call('over'))]);
  expect(await charged).toMatchObject(['served', { code: 'budget_exceeded' }]);
  expect(provider.recoveries).toHaveLength(1);
});

test('a call waits for a recovery at most until its deadline, and the recovery continues for the others', async () => {
  const { server, provider, call } = await setup();
  await call('warm');
  server.accept(second);
  let end = () => {};
  provider.onRecover = () =>
    new Promise((resolve) => {
      end = () => {
        provider.token = bearer(second);
        resolve(true);
      };
    });
  const leaving = new AbortController();
  const cancelled = failureOf(call('cancelled', { signal: leaving.signal }));
  await eventually('a recovery is under way', () => provider.recoveries.length === 1);
  const hasty = failureOf(call('hasty', { deadlineMs: 50 }));
  const patient = call('patient');
  leaving.abort();
  expect(await cancelled).toMatchObject({ code: 'cancelled', details: { execution: 'not_executed' } });
  expect(await hasty).toMatchObject({ code: 'timeout', details: { execution: 'not_executed' } });
  end();
  expect(await patient).toBe('patient');
  expect(server.executed).toEqual(['warm', 'patient']);
  expect(provider.recoveries).toHaveLength(1);
});

test('a call in progress is not ended when the token is refused', async () => {
  const { server, call, row } = await setup();
  await call('warm');
  let finish = () => {};
  server.onCall = (got, response, nonce) => {
    if (nonce !== 'slow') return false;
    finish = () => json(response, { jsonrpc: '2.0', id: got.id, result: { content: [{ type: 'text', text: nonce }] } });
    return true;
  };
  const slow = call('slow');
  await server.http.until(() => server.http.received.some(({ body }) => body.includes('slow')));
  server.accept(second);
  expect((await failureOf(call('refused'))).code).toBe('needs_reauth');
  expect(row()?.state).toBe('ready');
  finish();
  expect(await slow).toBe('slow');
  expect((await failureOf(call('refused'))).code).toBe('needs_reauth');
  await eventually('it waits for a token', () => row()?.state === 'auth_required');
});

test('a tool that needs more rights does not affect the others', async () => {
  const { host, server, provider, call, row } = await setup();
  server.onCall = (got, response) => {
    if (!got.body.includes('"admin"')) return false;
    response.writeHead(403, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="admin"' }).end();
    return true;
  };
  const error = await failureOf(host.call('guarded', 'admin'));
  expect(error).toMatchObject({ code: 'needs_reauth', details: { reason: 'insufficient_scope' } });
  expect(provider.recoveries[0]?.context).toMatchObject({ kind: 'scope', challenge: expect.stringContaining('admin') });
  expect(await call('served')).toBe('served');
  expect(row()).toMatchObject({ state: 'ready', run: 1 });
});

test('AC-C5 a recovery resets the counted failures, even if the call is then refused again; the refusal is not counted', async () => {
  const clock = new FakeClock();
  const entry = { breaker: { threshold: 3, reset: '1s' } };
  const { server, provider, call, row } = await setup({ clock, entry });
  await call('warm');
  let isDown = false;
  let held: ServerResponse | undefined;
  server.onRequest = (got, response) => {
    if (isDown) response.destroy();
    else if (!held && got.body.includes('sent before')) held = response;
    else return false;
    return true;
  };
  // An open breaker refuses all calls, so this call is sent before it opens, and answered after.
  const waiting = failureOf(call('sent before'));
  await server.http.until(() => held !== undefined);
  isDown = true;
  for (let i = 0; i < 3; i++) {
    // Losses in one moment would be one strike.
    clock.advance(300);
    await failureOf(call(`lost ${i}`));
  }
  for (const waitMs of [1_000, 2_000]) {
    clock.advance(waitMs);
    await failureOf(call('trial'));
  }
  expect(row()).toMatchObject({ circuit: 'open', consecutiveFailures: 5 });
  isDown = false;
  server.accept(third);
  brings(provider, second);
  held?.writeHead(401).end();
  expect((await waiting).toJSON()).toMatchObject({ code: 'needs_reauth', server: 'guarded' });
  expect(provider.recoveries).toHaveLength(1);
  expect(row()).toMatchObject({ circuit: 'closed', consecutiveFailures: 0 });
  expect(server.executed).toEqual(['warm']);
});

test('X15 no token is in any error, event, status or report, however much the server repeats', async () => {
  const { host, server, provider, call, row, events, problems } = await setup();
  server.onCall = (got, response) => {
    // Without the scheme in front, so that the token alone is searched.
    const error = { code: -32_000, message: `you are ${got.headers.authorization?.slice('Bearer '.length)}` };
    json(response, { jsonrpc: '2.0', id: got.id, error });
    return true;
  };
  const errors = [await failureOf(call('echoed'))];
  server.accept(second);
  brings(provider, second);
  errors.push(await failureOf(call('echoed, renewed')));
  server.accept(third);
  provider.onRecover = () => Promise.resolve(false);
  errors.push(await failureOf(call('refused')));
  await eventually('it waits for a token', () => row()?.state === 'auth_required');
  errors.push(await failureOf(call('refused again')));
  expect(errors.map(({ code }) => code)).toEqual(['tool_error', 'tool_error', 'needs_reauth', 'needs_reauth']);
  expect(errors[0]?.message).toContain('[REDACTED]');
  const shown = [
    JSON.stringify([errors, events, host.status(), problems]),
    inspect([errors, events, host.status(), problems], { depth: 20, showHidden: true }),
  ].join('\n');
  for (const token of [first, second, third]) expect(shown).not.toContain(token);
});

describe('without a provider', () => {
  test('a configured header is sent, and a refusal is final', async () => {
    const headers = { Authorization: `Bearer ${first}` };
    const { server, call, row } = await setup({ entry: { headers }, options: { authProvider: () => undefined } });
    expect(await call('served')).toBe('served');
    server.accept(second);
    expect((await failureOf(call('refused'))).code).toBe('needs_reauth');
    await eventually('it waits for a token', () => row()?.state === 'auth_required');
  });

  test('a factory that throws is reported, and the definition is used', async () => {
    const broken = new Error('a bug');
    const headers = { Authorization: `Bearer ${first}` };
    const authProvider = () => {
      throw broken;
    };
    const { call, problems } = await setup({ entry: { headers }, options: { authProvider } });
    expect(await call('served')).toBe('served');
    expect(problems).toEqual([broken]);
  });
});

test('a call that waits for a token when the host closes fails with that reason', async () => {
  const { host, server, provider, call } = await setup();
  await call('warm');
  server.accept(second);
  provider.onRecover = () => new Promise(() => {});
  const waiting = failureOf(call('waiting'));
  await eventually('a recovery is under way', () => provider.recoveries.length === 1);
  await host.close();
  expect((await waiting).code).toBe('server_stopped');
  expect(provider.recoveries[0]?.context.signal.aborted).toBe(true);
});

test('a replaced server and a closed host no longer listen to a provider', async () => {
  const { host, server, provider, call } = await setup();
  await call('warm');
  expect(provider.listeners.size).toBe(1);
  await host.spawn({ name: 'guarded', url: server.http.url, lazy: true, cache: 'off' }, { replace: true });
  expect(provider.listeners.size).toBe(1);
  await host.close();
  expect(provider.listeners.size).toBe(0);
});

test('status shows the account at the server, cut to 200 characters and redacted', async () => {
  const { provider, row } = await setup();
  expect(row()?.authIdentity).toBeUndefined();
  provider.identity = () => 'ada@example.com';
  expect(row()?.authIdentity).toBe('ada@example.com');
  provider.identity = () => `\u001b[2Jada ${first}`;
  expect(row()?.authIdentity).toContain('\\u{1b}[2Jada ');
  expect(row()?.authIdentity).not.toContain(first);
  provider.identity = () => 'x'.repeat(100_000);
  expect(row()?.authIdentity).toHaveLength(201);
});
