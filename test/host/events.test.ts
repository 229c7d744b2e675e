/**
 * The view of operators of a host with real child processes: the stream of events, the rows of `status`, and a span for each call.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import * as otel from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostEvent, HostEventOf } from '../../src/host/host-events.js';
import type { HostConfig } from '../../src/host/host-interface.js';
import type { StatusRow } from '../../src/host/status.js';
import { eventually } from '../eventually.js';
import { stdioFixtures } from '../fixtures/fixture-servers.js';
import { failureOf } from './harness.js';

const secret = 'Zx9-planted-Secret-7742';
const raw = stdioFixtures.find(({ name }) => name === 'raw-stdio-legacy');
if (!raw) throw new Error('no fixture');

let folder: string;
let host: Host;
let events: HostEvent[];
const problems: unknown[] = [];

const description = () => path.join(folder, 'description');
const eventful = (more: Record<string, unknown> = {}) => ({
  command: process.execPath,
  args: [fileURLToPath(new URL('../fakes/eventful-server.mjs', import.meta.url))],
  env: { DESCRIPTION: description(), API_TOKEN: secret },
  ...more,
});
const fixture = (more: Record<string, unknown> = {}) => ({
  command: raw.command,
  args: raw.args,
  env: { ...raw.env, LEDGER: path.join(folder, 'ledger') },
  ...more,
});
const open = async (config: HostConfig) => {
  host = await createHost(config, { stateDir: path.join(folder, 'state'), onProblem: (error) => problems.push(error) });
  events = [];
  host.on('any', (event) => events.push(event));
};
const heard = <Kind extends HostEvent['kind']>(kind: Kind) =>
  events.filter((event) => event.kind === kind) as unknown as HostEventOf<Kind>[];
const row = (name: string) => host.status().find((each) => each.name === name) as StatusRow;

/** Ends only processes that this test started, known by the folder in their environment, not by rows or answers. */
const kill = (pid: number | undefined) => {
  if (pid === undefined || !readFileSync(`/proc/${pid}/environ`, 'utf8').includes(folder)) {
    throw new Error(`${pid} is not ours to end`);
  }
  process.kill(pid, 'SIGKILL');
};

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-events-'));
  writeFileSync(description(), 'pays the bill');
  problems.length = 0;
});
afterEach(async () => {
  await host?.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('the stream', () => {
  test('reports each decision once and in order, without secrets', async () => {
    await open({
      mcpServers: { shop: eventful({ breaker: { threshold: 1, reset: '1s' }, timeouts: { call: '1s' } }) },
    });
    await host.call('shop', 'pay', { card: secret });
    const begun = events.length;
    host.setAllowlist(({ tool }) => (tool === 'rude' ? { allow: false, reason: secret } : { allow: true }));
    const errors = [await failureOf(host.call('shop', 'rude', { card: secret }))];
    await host.withBudget({ calls: 0 }, async () => {
      errors.push(await failureOf(host.call('shop', 'pay')));
    });
    errors.push(await failureOf(host.call('shop', 'hang', { card: secret })));
    errors.push(await failureOf(host.call('shop', 'pay')));
    await eventually('the breaker lets one try', () => row('shop').circuit === 'half_open');
    await host.call('shop', 'pay');
    writeFileSync(description(), 'pays the bill, and tells me');
    await host.tools('shop');
    await host.tools('shop');
    errors.push(await failureOf(host.call('shop', 'pay')));
    const { hash: newHash } = host.pin('shop', 'pay') ?? {};
    host.approve('shop', 'pay', newHash as string);

    expect(errors.map(({ code }) => code)).toEqual([
      ...['denied', 'budget_exceeded', 'outcome_uncertain', 'circuit_open', 'schema_changed'],
    ]);
    const decisions = events.slice(begun).filter(({ kind }) => kind !== 'call' && kind !== 'proven');
    const server = 'shop';
    expect(decisions).toMatchObject([
      { kind: 'denied', server, tool: 'rude', requestId: errors[0]?.details.requestId, principal: { id: 'embedder' } },
      { kind: 'budget', server, tool: 'pay', requestId: errors[1]?.details.requestId, limit: 0, spent: 1 },
      { kind: 'breaker', server, from: 'closed', to: 'open', failures: 1 },
      { kind: 'uncertain', server, tool: 'hang', requestId: errors[2]?.details.requestId },
      { kind: 'breaker', server, from: 'open', to: 'half_open', failures: 1 },
      { kind: 'breaker', server, from: 'half_open', to: 'closed', failures: 0 },
      { kind: 'schema', server, tool: 'pay', status: 'changed', newHash },
      { kind: 'schema', server, tool: 'pay', status: 'approved', newHash },
    ]);
    expect(events.map(({ atMs }) => atMs)).toEqual(events.map(({ atMs }) => atMs).sort((a, b) => a - b));

    host.setAllowlist();
    errors.push(await failureOf(host.call('shop', 'rude')));
    expect(errors.at(-1)?.code).toBe('tool_error');
    await host.reload('shop');
    await host.call('shop', 'pay');
    for (const text of [
      inspect(events, { depth: 20 }),
      JSON.stringify(host.status()),
      JSON.stringify(errors.slice(1)),
    ]) {
      expect(text.length).toBeGreaterThan(500);
      expect(text).not.toContain(secret);
    }
    expect(problems).toEqual([]);
  });

  test('has one record for each call, with any outcome, under the number in its error', async () => {
    await open({
      mcpServers: { a: fixture(), kept: { ...ledgerServer(), cache: 'on' } },
      roles: { dev: { allow: ['*/*'] } },
    });
    const principal = { id: 'ada', role: 'dev', scopes: ['secret-scope'] };
    await host.call('a', 'add', { a: 1, b: 2 }, { principal });
    await host.call('a', 'fail', {}, { principal });
    const missing = await failureOf(host.call('nowhere', 'x'));
    const cancelled = await failureOf(host.call('a', 'sleep', { ms: 60_000 }, { signal: AbortSignal.timeout(50) }));
    await host.call('kept', 'count', { nonce: 'n' });
    await host.call('kept', 'count', { nonce: 'n' });
    const records = heard('call');
    expect(records).toMatchObject([
      { server: 'a', tool: 'add', outcome: 'ok', execution: 'executed', attempts: 1, run: 1, fromCache: false },
      { server: 'a', tool: 'fail', outcome: 'tool_error', execution: 'executed', attempts: 1, run: 1 },
      { server: 'nowhere', outcome: 'server_not_found', attempts: 0, run: 0 },
      { server: 'a', tool: 'sleep', outcome: 'cancelled', execution: 'uncertain', attempts: 1, run: 1 },
      { server: 'kept', outcome: 'ok', execution: 'executed', attempts: 1, fromCache: false, run: 1 },
      { server: 'kept', outcome: 'ok', execution: 'not_executed', attempts: 0, fromCache: true, run: 0 },
    ]);
    expect(records[0]?.principal).toEqual({ id: 'ada', role: 'dev' });
    expect(records[0]?.argumentsHash).toMatch(/^[0-9a-f]{64}$/);
    expect(records[4]?.argumentsHash).toBe(records[5]?.argumentsHash);
    expect(new Set(records.map(({ requestId }) => requestId)).size).toBe(records.length);
    expect([missing, cancelled].map(({ details }) => details.requestId)).toEqual([
      records[2]?.requestId,
      records[3]?.requestId,
    ]);
    expect(records.every(({ durationMs }) => durationMs >= 0)).toBe(true);
    await host.close();
    const late = await failureOf(host.call('a', 'echo', { text: 'x' }));
    expect(late.details.requestId).toBe(heard('call').at(-1)?.requestId);
  });

  test('reports a call that is sent again, and why that was safe', async () => {
    await open({ mcpServers: { shop: eventful({ trustAnnotations: true }) } });
    await host.call('shop', 'pay');
    await host.call('shop', 'look');
    const [, record] = heard('call');
    expect(record).toMatchObject({ tool: 'look', outcome: 'ok', attempts: 2, run: 2 });
    const { requestId } = record ?? {};
    expect(heard('replay')).toMatchObject([
      { server: 'shop', tool: 'look', requestId, attempt: 2, reason: 'may_run_twice', code: 'transport' },
    ]);
  });

  test('reports a throttled caller, once for each refused call', async () => {
    await open({ mcpServers: { shop: eventful() } });
    for (let i = 0; i < 5; i++) await host.call('shop', 'fail');
    expect(heard('throttled')).toEqual([]);
    await failureOf(host.call('shop', 'fail'));
    expect(heard('throttled')).toMatchObject([{ server: 'shop', tool: 'fail', principal: { id: 'embedder' } }]);
  });

  test('reaches listeners by kind until they unsubscribe, and a throwing listener does not affect others', async () => {
    await open({ mcpServers: { shop: eventful() } });
    const kinds: string[] = [];
    host.on('call', () => {
      throw new Error('mine');
    });
    const off = host.on('call', ({ kind, outcome }) => kinds.push(`${kind} ${outcome}`));
    await host.call('shop', 'pay');
    off();
    await host.call('shop', 'pay');
    expect(kinds).toEqual(['call ok']);
    expect(problems).toHaveLength(2);
  });
});

const ledgerServer = () => ({
  command: 'perl',
  args: [fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url))],
  env: { LEDGER: path.join(folder, 'ledger'), HINT: '"ttlMs":60000' },
});

describe('status', () => {
  const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

  test('shows the identity, start, process and protocol of a running server', async () => {
    await open({ mcpServers: { shop: eventful(), far: { url: 'http://127.0.0.1:9/mcp' } } });
    expect(row('shop')).toMatchObject({
      ...{ state: 'registered', transport: 'stdio', pid: undefined, uptimeMs: undefined, protocolVersion: undefined },
      ...{ stderrTail: undefined, lastSuccessAt: undefined, lastError: undefined, nextProbeAt: undefined },
    });
    expect(row('far')).toMatchObject({ transport: 'auto', noticesLost: undefined, pid: undefined });
    await host.call('shop', 'pay');
    const lease = await host.lease('shop');
    const abort = new AbortController();
    const hanging = host.call('shop', 'hang', {}, { signal: abort.signal });
    await eventually('the call is under way', () => row('shop').leases.calls === 1);
    const { since, pid, stderrTail, lastSuccessAt, uptimeMs, ...up } = row('shop');
    expect(up).toMatchObject({
      ...{ state: 'ready', run: 1, transport: 'stdio', protocolVersion: '2025-11-25', tools: 7, changedTools: 0 },
      ...{ refCount: 2, leases: { bindings: 1, calls: 1 }, running: 1, cacheEntries: 0, noisy: false, escaped: 0 },
    });
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    for (const time of [since, lastSuccessAt]) expect(time).toMatch(isoTime);
    expect(uptimeMs).toBeGreaterThanOrEqual(0);
    expect(stderrTail).toBe('starting with [REDACTED]\n\\u{1b}[31mlast line\n');
    abort.abort();
    await failureOf(hanging);
    lease.release();
    writeFileSync(description(), 'changed');
    await host.tools('shop');
    expect(row('shop')).toMatchObject({ changedTools: 1, leases: { bindings: 0, calls: 0 } });
  });

  test('never shows an ended process: not after a kill, not in the next run, not after a stop', async () => {
    await open({ mcpServers: { shop: eventful() } });
    await host.call('shop', 'pay');
    const first = row('shop');
    const seen: unknown[] = [];
    host.on('state', ({ from, to }) => {
      const { pid, uptimeMs, protocolVersion, stderrTail } = row('shop');
      if (to !== 'ready') seen.push([from, pid, uptimeMs, protocolVersion, stderrTail]);
    });
    kill(first.pid ?? undefined);
    await eventually('the row no longer shows the ended process', () => row('shop').pid !== first.pid);
    await host.call('shop', 'pay');
    const second = row('shop');
    expect([second.run, second.pid === first.pid, existsSync(`/proc/${second.pid}`)]).toEqual([2, false, true]);
    expect(second.lastError).toMatchObject({ code: 'transport', at: expect.stringMatching(isoTime) });
    expect(second.lastError?.message).not.toContain(secret);
    expect(seen.length).toBeGreaterThan(0);
    expect(seen.map((each) => (each as unknown[]).slice(1))).toEqual(seen.map(() => Array(4).fill(undefined)));
    await host.stop('shop');
    expect(row('shop')).toMatchObject({ state: 'stopped', pid: undefined, uptimeMs: undefined });
  });

  test('stderr of a process can be read after its end, also if it never became a server', async () => {
    const script = (code: string) => ({ command: process.execPath, args: ['-e', code] });
    const broken = script("console.error('no such table'); process.exit(1)");
    await open({ mcpServers: { shop: eventful(), broken } });
    expect(host.stderr('shop')).toBeUndefined();
    await host.call('shop', 'pay');
    const said = await eventually(
      'it was read',
      () => host.stderr('shop')?.includes('last line') && host.stderr('shop'),
    );
    await host.stop('shop');
    expect([host.stderr('shop'), row('shop').stderrTail]).toEqual([said, undefined]);
    await failureOf(host.call('broken', 'x'));
    expect(host.stderr('broken')).toBe('no such table\n');
  });

  test('shows the end of stderr, at most 2 KiB, without any line of a key that began earlier', async () => {
    await open({ mcpServers: { shop: eventful() } });
    for (let i = 0; i < 2; i++) await host.call('shop', 'shout');
    const tail = await eventually('it was read', () => {
      const { stderrTail } = row('shop');
      return stderrTail?.endsWith('line 19 of the log, which is of no interest\n') && stderrTail;
    });
    expect(tail.length).toBeGreaterThan(500);
    expect(tail.length).toBeLessThanOrEqual(2_048);
    expect(tail).not.toContain('KeyBody');
  });

  test('reports the next attempt of a parked server, in monotonic and wall clock time', async () => {
    await open({ mcpServers: { none: { command: 'no-such-command' } } });
    await failureOf(host.call('none', 'x'));
    const { nextProbeAt, nextProbeInMs } = row('none');
    expect(nextProbeAt).toMatch(isoTime);
    expect(nextProbeInMs).toBeGreaterThan(0);
  });

  test('counts a process that left the group for as long as it runs', async () => {
    await open({ mcpServers: { shop: eventful() } });
    const result = (await host.call('shop', 'escape')).json() as { content: { text: string }[] };
    const pid = Number(result.content[0]?.text);
    try {
      expect(row('shop').escaped).toBe(0);
      await host.stop('shop');
      expect(row('shop').escaped).toBe(1);
    } finally {
      kill(pid);
    }
    await eventually('it is gone', () => row('shop').escaped === 0);
  });
});

describe('D-28 traces', () => {
  const exporter = new InMemorySpanExporter();
  const tracer = otel.trace.getTracer('test');
  const parentOf = new Map<string, string>();
  let started = 0;

  beforeAll(() => {
    const counting = {
      onStart: () => void started++,
      onEnd: () => {},
      forceFlush: async () => {},
      shutdown: async () => {},
    };
    otel.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    otel.trace.setGlobalTracerProvider(
      new BasicTracerProvider({ spanProcessors: [counting, new SimpleSpanProcessor(exporter)] }),
    );
  });
  beforeEach(() => {
    exporter.reset();
    parentOf.clear();
    started = 0;
  });
  afterAll(() => {
    otel.context.disable();
    otel.trace.disable();
  });

  const calls = () => exporter.getFinishedSpans().filter(({ name }) => name === 'hostler.call');
  /** Runs within its own span, across every await. */
  const within = async (name: string, run: () => Promise<unknown>) => {
    const span = tracer.startSpan(name);
    parentOf.set(name, span.spanContext().spanId);
    await otel.context.with(otel.trace.setSpan(otel.context.active(), span), run);
    span.end();
  };

  test('a span for each of many interleaved calls, each with its own work as the parent', async () => {
    await open({ mcpServers: { a: fixture(), b: fixture() }, telemetry: { traces: true } });
    await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        within(`work ${i}`, async () => {
          await host.call(i % 2 ? 'a' : 'b', 'sleep', { ms: (i * 7) % 20 });
          await host.call(i % 2 ? 'b' : 'a', 'add', { a: i, b: i });
        }),
      ),
    );
    expect(calls()).toHaveLength(40);
    for (let i = 0; i < 20; i++) {
      const own = calls().filter(({ parentSpanContext }) => parentSpanContext?.spanId === parentOf.get(`work ${i}`));
      expect(own.map(({ attributes }) => [attributes['hostler.server'], attributes['hostler.tool']])).toEqual([
        [i % 2 ? 'a' : 'b', 'sleep'],
        [i % 2 ? 'b' : 'a', 'add'],
      ]);
    }
    expect(calls()[0]?.attributes).toMatchObject({
      ...{ 'hostler.outcome': 'ok', 'hostler.run': 1, 'hostler.attempts': 1, 'hostler.cache_hit': false },
    });
  });

  test('each span ends once for any end of its call: answered, refused, cancelled, lost, closed', async () => {
    await open({ mcpServers: { a: fixture({ trustAnnotations: true }) }, telemetry: { traces: true } });
    host.setAllowlist(({ tool }) => (tool === 'fail' ? { allow: false, reason: 'no' } : { allow: true }));
    await host.call('a', 'echo', { text: 'x' });
    await failureOf(host.call('a', 'fail'));
    await failureOf(host.call('nowhere', 'x'));
    await failureOf(host.call('a', 'sleep', { ms: 60_000 }, { signal: AbortSignal.timeout(20) }));
    await failureOf(host.call('a', 'exit', { code: 3 }));
    await host.call('a', 'echo', { text: 'again' });
    const underWay = failureOf(host.call('a', 'sleep', { ms: 60_000, nonce: 'n', begun: true }));
    const ledger = path.join(folder, 'ledger');
    await eventually('it runs', () => existsSync(ledger) && readFileSync(ledger, 'utf8').includes('begun n'));
    await host.close();
    const last = await underWay;
    await failureOf(host.call('a', 'echo', { text: 'too late' }));
    expect(calls().map(({ attributes }) => attributes['hostler.outcome'])).toEqual([
      ...['ok', 'denied', 'server_not_found', 'cancelled', 'outcome_uncertain', 'ok', last.code, 'server_stopped'],
    ]);
    expect(calls()[5]?.attributes['hostler.run']).toBe(2);
    expect([started, new Set(calls().map((span) => span.spanContext().spanId)).size]).toEqual([8, 8]);
  });

  test('no spans unless they are configured', async () => {
    await open({ mcpServers: { a: fixture() } });
    await host.call('a', 'echo', { text: 'x' });
    expect(started).toBe(0);
  });

  test('a wrong setting is refused by its path', async () => {
    const telemetry = { traces: 'yes' } as never;
    expect((await failureOf(createHost({ telemetry }))).details.field).toBe('telemetry.traces');
  });

  test.each([null, undefined, []])('%j is no configuration, and the error says so', async (config) => {
    const error = await failureOf(createHost(config as never));
    expect([error.code, error.message]).toEqual(['invalid_spec', 'the configuration: must be an object']);
  });
});
