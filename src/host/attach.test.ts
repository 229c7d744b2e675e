/**
 * Connections that the application attaches under a name: one test for each guarantee, on a fake clock.
 */
import { describe, expect, test } from 'vitest';
import { FakeTransport, type FakeTransportScript } from '../../test/fakes/attached-transport.js';
import { isHostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { createHost, type Host } from './host.js';
import type { HostConfig } from './host-interface.js';
import type { AttachOptions } from './spawn.js';

async function open(config: HostConfig = {}) {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const host = await createHost(config, { clock, random: () => 0.5, onProblem: (error) => void problems.push(error) });
  const row = (name = 'x') => host.status().find((each) => each.name === name);
  const state = (name = 'x') => row(name)?.state;
  return { host, clock, problems, row, state };
}

const call = (host: Host, options?: Parameters<Host['call']>[3]) => host.call('x', 'say', {}, options);

async function failureOf(promise: Promise<unknown>) {
  const error = await promise.then(
    () => new Error('it did not fail'),
    (thrown: unknown) => thrown,
  );
  if (!isHostError(error)) throw error;
  return error;
}

/** Makes a new transport for each start, and keeps them. */
function factory(script?: FakeTransportScript) {
  const made: FakeTransport[] = [];
  const make = () => {
    const transport = new FakeTransport(script);
    made.push(transport);
    return transport;
  };
  return { make, made };
}

describe('attachable objects', () => {
  test('E23 an unstarted transport is started, initialized, listed and called', async () => {
    const { host, row } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    expect(transport.sent.map(({ method }) => method)).toEqual([
      ...['server/discover', 'initialize', 'notifications/initialized', 'tools/list'],
    ]);
    expect((await call(host)).json()).toEqual({ content: [{ type: 'text', text: 'say' }] });
    expect((await host.tools('x')).map(({ name }) => name)).toEqual(['say']);
    expect(row()).toMatchObject({ state: 'ready', transport: 'attached', pid: null, lazy: false, tools: 1, run: 1 });
    expect(transport.starts).toBe(1);
  });

  test('a server that ignores the first request of the handshake gets the older handshake', async () => {
    const { host, clock, state } = await open();
    const attaching = host.attach('x', new FakeTransport({ ignores: ['server/discover'] }));
    await clock.advanceAsync(2_000);
    await attaching;
    expect(state()).toBe('ready');
  });

  test.each([
    ['a started transport', () => Object.assign(new FakeTransport(), { _started: true }), 'source'],
    ['a transport in use', () => Object.assign(new FakeTransport(), { onmessage: () => {} }), 'source'],
    ['a connected server', () => ({ connect: fail, close: fail, isConnected: () => true }), 'source'],
    ['an object that is neither transport nor server', () => ({ start: fail }), 'source'],
    ['undefined', () => undefined, 'source'],
  ])('E23 %s is refused as invalid_spec, and none of its methods is called', async (_title, make, field) => {
    const { host } = await open();
    const error = await failureOf(host.attach('x', make() as never));
    expect([error.code, error.details.field, host.names()]).toEqual(['invalid_spec', field, []]);
  });

  test.each([
    ['', {}, 'name'],
    ['a b', {}, 'name'],
    ['x', { pines: 'off' }, 'pines'],
    ['x', { enabled: false }, 'enabled'],
    ['x', { command: 'node' }, 'command'],
    ['x', { keepAliveMs: '10m' }, 'keepAliveMs'],
    ['x', { pins: 'sometimes' }, 'pins'],
    ['x', 'lazy', 'options'],
  ])('a wrong name or option is refused as invalid_spec: %j %j', async (name, options, field) => {
    const { host } = await open();
    const transport = new FakeTransport();
    const error = await failureOf(host.attach(name, transport, options as AttachOptions));
    expect([error.code, error.details.field, transport.starts]).toEqual(['invalid_spec', field, 0]);
    await host.attach('x', transport);
  });
});

describe('names', () => {
  test('E23 a name in use is refused and its server keeps running, except with replace', async () => {
    const { host } = await open({ mcpServers: { conf: { command: 'node' } } });
    const [first, second] = [new FakeTransport(), new FakeTransport({ tools: { other: '' } })];
    await host.attach('x', first);
    for (const name of ['x', 'conf'])
      expect(await failureOf(host.attach(name, second))).toMatchObject({
        code: 'invalid_spec',
        details: { field: 'name' },
      });
    expect([second.starts, (await call(host)).isError]).toEqual([0, false]);
    await host.attach('x', second, { replace: true });
    expect([first.closes, (await host.tools('x')).map(({ name }) => name)]).toEqual([1, ['other']]);
  });

  test('E23 when the successor fails, the earlier server is restored: it runs if it has a factory, else it is stopped', async () => {
    const { host, state, clock } = await open();
    const bad = () => new FakeTransport({ start: async () => fail() });
    const { make, made } = factory();
    await host.attach('x', make);
    const failed = await failureOf(host.attach('x', bad(), { replace: true }));
    expect([failed.code, failed.message]).toEqual(['connect_failed', expect.stringContaining('is registered again')]);
    await clock.advanceAsync(1_000);
    expect([state(), made.length]).toEqual(['ready', 2]);
    await host.attach('y', new FakeTransport());
    await failureOf(host.attach('y', bad(), { replace: true }));
    expect([state('y'), (await failureOf(host.call('y', 'say'))).code]).toEqual(['stopped', 'server_stopped']);
  });

  test('E23 reading the configuration again never touches an attached name, and refuses an entry that has it', async () => {
    const { host, problems } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    expect(await host.reconfigure({ mcpServers: { x: { command: 'node' }, y: { command: 'node' } } })).toEqual({
      ...{ added: ['y'], changed: [], removed: [] },
    });
    expect(problems).toMatchObject([{ code: 'invalid_spec', details: { field: 'mcpServers.x' } }]);
    expect(String(problems[0])).toContain('attached');
    await host.reconfigure({});
    await call(host);
    expect([transport.closes, host.names()]).toEqual([0, ['x']]);
  });

  test('E23 with replace an attached server can take the name of a configured server', async () => {
    const mcpServers = { x: { command: 'node' } };
    const { host, problems } = await open({ mcpServers });
    const transport = new FakeTransport();
    await host.attach('x', transport, { replace: true });
    for (const config of [{ mcpServers }, {}, { mcpServers: { x: { command: 'deno' } } }])
      await host.reconfigure(config);
    expect([transport.closes, problems.length, (await call(host)).isError]).toEqual([0, 2, false]);
  });

  test('E23 a configured entry that waits for its name does not replace an object that was attached meanwhile', async () => {
    const { host, clock, problems } = await open();
    const [stuck, next] = [new FakeTransport({ close: () => new Promise(() => {}) }), new FakeTransport()];
    await host.attach('x', stuck);
    // The name looks free, but its old server is still closing: both wait for its end.
    const changes = [
      host.detach('x'),
      host.attach('x', next),
      host.reconfigure({ mcpServers: { x: { command: 'node' } } }),
    ];
    await clock.advanceAsync(5_000);
    await Promise.all(changes);
    expect([next.closes, (await call(host)).isError]).toEqual([0, false]);
    expect(problems).toMatchObject([{ code: 'timeout' }, { code: 'invalid_spec', details: { field: 'mcpServers.x' } }]);
  });

  test('E23 the same factory under a name in use is refused too', async () => {
    const { host } = await open();
    const { make, made } = factory();
    await host.attach('x', make);
    expect((await failureOf(host.attach('x', make))).code).toBe('invalid_spec');
    await host.attach('x', make, { replace: true });
    expect(made.map(({ closes }) => closes)).toEqual([1, 0]);
  });
});

describe('the host owns an attached object', () => {
  test.each([
    ['stop', (host: Host) => host.stop('x')],
    ['detach', (host: Host) => host.detach('x')],
    ['close', (host: Host) => host.close()],
  ])('E23 %s closes the object', async (_title, end) => {
    const { host, clock } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    await end(host);
    expect([transport.closes, clock.pendingTimers]).toEqual([1, 0]);
    expect(['server_stopped', 'server_not_found']).toContain((await failureOf(call(host))).code);
  });

  test('E23 a call in progress is answered before the connection is closed', async () => {
    const { host } = await open();
    let answer = () => {};
    const transport = new FakeTransport({
      call: (_name, id, self) => {
        answer = () => self.onmessage?.({ jsonrpc: '2.0', id, result: { content: [] } });
        return undefined;
      },
    });
    await host.attach('x', transport);
    const calling = call(host);
    await until(() => transport.calls.length === 1);
    const detached = host.detach('x');
    await tick();
    expect(transport.closes).toBe(0);
    answer();
    expect((await calling).isError).toBe(false);
    await detached;
    expect([transport.closes, host.names()]).toEqual([1, []]);
  });

  test.each(['stop', 'detach', 'close'] as const)(
    'E23 %s waits 5 s for an object that does not close, then abandons it and reports that',
    async (how) => {
      const { host, clock, problems } = await open();
      await host.attach('x', new FakeTransport({ close: () => new Promise(() => {}) }));
      let isOver = false;
      const ending = (how === 'close' ? host.close() : host[how]('x')).then(() => {
        isOver = true;
      });
      await clock.advanceAsync(4_999);
      expect([isOver, problems]).toEqual([false, []]);
      await clock.advanceAsync(1);
      await ending;
      expect(problems).toMatchObject([{ code: 'timeout', details: { server: 'x', reason: 'close_timeout' } }]);
    },
  );

  test('E23 only attached servers are detached, and a detached name is free', async () => {
    const { host } = await open({ mcpServers: { conf: { command: 'node' } } });
    expect((await failureOf(host.detach('conf'))).code).toBe('invalid_spec');
    expect((await failureOf(host.detach('x'))).code).toBe('server_not_found');
    await host.attach('x', new FakeTransport());
    await host.detach('x');
    await host.attach('x', new FakeTransport());
    expect(host.names()).toEqual(['conf', 'x']);
  });

  test('E23 detach cancels an attach that still waits for its server', async () => {
    const { host } = await open();
    const transport = new FakeTransport();
    transport.isSilent = true;
    const attaching = failureOf(host.attach('x', transport));
    await until(() => transport.sent.length > 0);
    await host.detach('x');
    expect([(await attaching).code, transport.closes, host.names()]).toEqual(['server_stopped', 1, []]);
  });

  test('a failed start leaves no server, and its object is closed', async () => {
    const { host } = await open();
    const transport = new FakeTransport({ start: async () => fail() });
    const error = await failureOf(host.attach('x', transport));
    expect(error).toMatchObject({ code: 'connect_failed', details: { reason: 'start_failed' } });
    expect(causesOf(error).at(-1)).toMatchObject({ message: 'not today' });
    expect([transport.closes, host.names()]).toEqual([1, []]);
  });
});

describe('a server without a factory', () => {
  test.each([
    [{ lazy: true }, 'lazy'],
    [{ isolation: 'per-client' }, 'isolation'],
    [{ keepAliveMs: 60_000 }, 'keepAliveMs'],
    [{ keepAlive: '1m' }, 'keepAlive'],
    [{ maxRestarts: 3 }, 'maxRestarts'],
    [{ restart: { max: 3 } }, 'restart'],
  ] as const)('E23 is refused with the option %j', async (options, field) => {
    const { host } = await open();
    const transport = new FakeTransport();
    const error = await failureOf(host.attach('x', transport, options));
    expect([error.code, error.details.field, error.message]).toEqual([
      ...['invalid_spec', field, expect.stringContaining('needs a factory')],
    ]);
    expect([transport.starts, host.names()]).toEqual([0, []]);
  });

  test('E23 is never stopped for idleness', async () => {
    const { host, clock, state } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    await call(host);
    await clock.advanceAsync(24 * 3_600_000);
    expect([state(), transport.closes]).toEqual(['ready', 0]);
  });

  test('E23 is stopped after its end: no call, start, reload or timer restarts it', async () => {
    const { host, clock, row } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    transport.onerror?.(new Error('reset by peer'));
    transport.onclose?.();
    await clock.advanceAsync(0);
    expect(row()).toMatchObject({ state: 'stopped', pid: null, lastError: { code: 'transport' }, restartCount: 0 });
    for (const attempt of [() => call(host), () => host.start('x'), () => host.lease('x')]) {
      const refused = await failureOf(attempt());
      expect([refused.code, refused.hint]).toEqual(['server_stopped', expect.stringContaining('without a factory')]);
    }
    expect((await failureOf(host.reload('x'))).code).toBe('invalid_request');
    await clock.advanceAsync(24 * 3_600_000);
    expect([transport.starts, transport.closes, row()?.run]).toEqual([1, 1, 1]);
    await host.attach('x', new FakeTransport(), { replace: true });
    expect((await call(host)).isError).toBe(false);
  });

  test('E23 keeps running when its reload is refused', async () => {
    const { host } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    expect((await failureOf(host.reload('x'))).code).toBe('invalid_request');
    await host.start('x');
    await call(host);
    expect([transport.starts, transport.closes]).toEqual([1, 0]);
  });

  test('E23 is closed and stopped when it no longer answers', async () => {
    const { host, clock, row } = await open();
    const transport = new FakeTransport();
    await host.attach('x', transport);
    transport.isSilent = true;
    const calling = failureOf(call(host, { deadlineMs: 1_000 }));
    await clock.advanceAsync(1_000);
    expect((await calling).code).toBe('outcome_uncertain');
    await clock.advanceAsync(5 * 60_000);
    expect(row()).toMatchObject({ state: 'stopped', lastError: { code: 'transport' } });
    expect([transport.closes, transport.starts]).toEqual([1, 1]);
  });
});

describe('a server with a factory', () => {
  test('E23 is restarted by the same rules, each time with a new object', async () => {
    const { host, clock, row } = await open();
    const { make, made } = factory();
    await host.attach('x', async () => make());
    await call(host);
    made[0]?.onclose?.();
    await clock.advanceAsync(1_000);
    expect(row()).toMatchObject({ state: 'ready', run: 2, restartCount: 1, pid: null });
    await call(host);
    expect(made.map(({ starts, closes, calls }) => [starts, closes, calls])).toEqual([
      [1, 1, ['say']],
      [1, 0, ['say']],
    ]);
    await host.reload('x');
    await clock.advanceAsync(0);
    expect([made.length, made[1]?.closes]).toEqual([3, 1]);
  });

  test('E23 fails to start if the factory throws: the start is repeated, and the server is parked when the budget is spent', async () => {
    const { host, clock, state } = await open();
    const { make } = factory();
    let throws = 2;
    const attached = host.attach('x', () => (throws-- > 0 ? fail() : make()));
    await clock.advanceAsync(5_000);
    await attached;
    expect(state()).toBe('ready');
    const parked = failureOf(host.attach('y', () => fail(), { maxRestarts: 1 }));
    await clock.advanceAsync(5_000);
    expect(await parked).toMatchObject({
      code: 'connect_failed',
      details: { reason: 'factory_failed' },
      hint: expect.stringContaining("attach server 'y' again"),
    });
    expect(host.names()).toEqual(['x']);
  });

  test('E23 fails to start if the factory returns an object that was used before', async () => {
    const { host, clock, row } = await open();
    const only = new FakeTransport();
    await host.attach('x', () => only);
    only.onclose?.();
    await clock.advanceAsync(1_000);
    expect(row()).toMatchObject({ state: 'parked', lastError: { code: 'invalid_spec' } });
    expect([only.starts, (await failureOf(call(host))).code]).toEqual([1, 'server_parked']);
    const again = await failureOf(host.attach('y', () => only));
    expect([again.code, again.message]).toEqual(['invalid_spec', expect.stringContaining('attached before')]);
  });

  test('E23 fails at the start timeout if the factory never resolves', async () => {
    const { host, clock } = await open();
    const attaching = failureOf(host.attach('x', () => new Promise(() => {}), { timeouts: { start: '3s' } }));
    await clock.advanceAsync(3_000);
    const error = await attaching;
    expect([error.code, error.details.reason, host.names()]).toEqual(['timeout', 'start_timeout', []]);
  });

  test('E23 may be lazy: created at the first use, and closed when idle', async () => {
    const { host, clock, state, row } = await open();
    const { make, made } = factory();
    await host.attach('x', make, { lazy: true, keepAliveMs: 60_000 });
    expect([state(), made.length, row()?.pid, row()?.transport]).toEqual(['registered', 0, null, 'attached']);
    await call(host);
    await clock.advanceAsync(60_000);
    expect([state(), made.map(({ closes }) => closes)]).toEqual(['registered', [1]]);
    await call(host);
    expect(made).toHaveLength(2);
  });

  test('E23 is started once behind a gateway or broker even if it is lazy, to read its tools', async () => {
    const { host } = await open();
    host.learnTools();
    const { make, made } = factory();
    await host.attach('x', make, { lazy: true });
    await until(() => host.known('x')?.lists.get('tools/list')?.items.length === 1);
    expect(made).toHaveLength(1);
  });

  test('E23 may give each client its own object, and no access to others', async () => {
    const { host, row } = await open();
    const { make, made } = factory();
    await host.attach('x', make, { isolation: 'per-client' });
    for (const instance of ['ann', 'bob', 'ann']) await call(host, { instance });
    expect(made.map(({ calls }) => calls.length)).toEqual([0, 2, 1]);
    expect(row()?.instances).toBe(2);
    host.endInstance('ann');
    await until(() => made[1]?.closes === 1);
    const shared = new FakeTransport();
    await host.attach('y', () => shared, { isolation: 'per-client' });
    expect((await failureOf(host.call('y', 'say', {}, { instance: 'ann' }))).code).toBe('server_parked');
  });
});

describe('like any other server', () => {
  test('E23 relatedRequestId is proof of the call that a question and a log line belong to', async () => {
    const { host } = await open();
    const ids: number[] = [];
    const transport = new FakeTransport({ call: (_name, id) => void ids.push(id) as undefined });
    await host.attach('x', transport);
    const heard: string[] = [];
    const caller = (who: string) =>
      call(host, {
        onServerRequest: (request) => {
          heard.push(`${who} ${request.method}`);
          request.respond('{}');
        },
        onServerNotification: (method) => void heard.push(`${who} ${method}`),
      });
    const calls = [caller('ann'), caller('bob')];
    await until(() => ids.length === 2);
    const say = (message: object, relatedRequestId?: number) =>
      transport.onmessage?.({ jsonrpc: '2.0', params: {}, ...message }, { relatedRequestId });
    const [ann, bob] = ids as [number, number];
    say({ id: 's1', method: 'elicitation/create' }, bob);
    say({ method: 'notifications/message' }, ann);
    // Nothing proves which of the two calls caused this question: it reaches neither caller.
    say({ id: 's2', method: 'elicitation/create' });
    say({ method: 'notifications/message' });
    for (const id of ids) transport.onmessage?.({ jsonrpc: '2.0', id, result: { content: [] } });
    await Promise.all(calls);
    // Its call is over.
    const third = caller('cyd');
    await until(() => ids.length === 3);
    say({ method: 'notifications/message' }, ann);
    say({ id: 's3', method: 'elicitation/create' }, bob);
    transport.onmessage?.({ jsonrpc: '2.0', id: ids[2], result: { content: [] } });
    await third;
    expect(heard).toEqual(['bob elicitation/create', 'ann notifications/message']);
  });

  test('E23 roles, budgets, the cache and the breaker apply to it', async () => {
    const { host, clock, row } = await open({ roles: { reader: { allow: ['x/other'] } } });
    const transport = new FakeTransport({
      tools: { say: '', other: '' },
      call: (name) => (name === 'say' ? fail() : { result: { content: [], ttlMs: 60_000 } }),
    });
    await host.attach('x', transport, { circuitThreshold: 2 });
    const principal = { id: 'ann', role: 'reader', scopes: [] };
    expect((await failureOf(call(host, { principal }))).code).toBe('denied');
    expect((await host.tools('x', { principal })).map(({ name }) => name)).toEqual(['other']);
    for (let i = 0; i < 3; i++) await host.call('x', 'other');
    expect([transport.calls, row()?.cacheEntries]).toEqual([['other'], 1]);
    const spent = await host.withBudget({ calls: 1 }, async () => [
      (await failureOf(call(host))).code,
      (await failureOf(call(host))).code,
    ]);
    expect(spent).toEqual(['outcome_uncertain', 'budget_exceeded']);
    // Simultaneous losses count as one.
    await clock.advanceAsync(10_000);
    expect([(await failureOf(call(host))).code, row()?.circuit]).toEqual(['outcome_uncertain', 'open']);
    expect([(await failureOf(call(host))).code, transport.calls.length]).toEqual(['circuit_open', 3]);
  });

  test('E23 tools are pinned by name, whichever server is attached under it', async () => {
    const { host, row } = await open();
    await host.attach('x', new FakeTransport({ tools: { say: 'reads' } }));
    await host.detach('x');
    await host.attach('x', new FakeTransport({ tools: { say: 'deletes everything' } }));
    expect([row()?.changedTools, host.pin('x', 'say')?.status]).toEqual([1, 'changed']);
    expect((await failureOf(call(host))).code).toBe('schema_changed');
    host.approve('x', 'say', host.pin('x', 'say')?.hash as string);
    expect((await call(host)).isError).toBe(false);
  });

  test('E23 events, status and listings show it until it is detached', async () => {
    const { host } = await open();
    const told: string[] = [];
    host.onKnownChanged((server) => told.push(server));
    await host.attach('x', new FakeTransport());
    expect(host.known('x')).toMatchObject({ isReady: true, facts: { era: 'legacy' } });
    expect(told).toContain('x');
    told.length = 0;
    await host.detach('x');
    expect([host.known('x'), told.includes('x')]).toEqual([undefined, true]);
  });
});

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

async function until(condition: () => boolean): Promise<void> {
  for (let turns = 0; !condition(); turns++) {
    if (turns > 10_000) throw new Error('what is waited for does not happen');
    await tick();
  }
}

function causesOf(error: unknown): unknown[] {
  return error instanceof Error ? [error, ...causesOf(error.cause)] : [];
}

function fail(): never {
  throw new Error('not today');
}
