/** The metrics of a real host with real child processes. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Registry, register } from 'prom-client';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { BrokerFigures } from '../../src/gateway/metrics/metric-table.js';
import { metricTable } from '../../src/gateway/metrics/metric-table.js';
import { createMetrics, type Metrics } from '../../src/gateway/metrics/metrics.js';
import { createHost, type Host } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { failureOf } from '../host/harness.js';

const run = promisify(execFile);
const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
const tool = '[{"name":"note","inputSchema":{"type":"object"}}]';
let folder: string;
let host: Host;
let metrics: Metrics;
const entry = (env: Record<string, string> = {}, more = {}) => ({
  command: 'perl',
  args: [script],
  env: { LEDGER: path.join(folder, 'ledger'), TOOLS: tool, ...env },
  ...more,
});

beforeEach(async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-metrics-'));
  host = await createHost({
    mcpServers: {
      plain: entry(),
      kept: entry({ HINT: '"ttlMs":60000' }),
      mortal: entry({ DIES: '1' }),
      resting: entry(),
    },
    roles: { none: { allow: [] } },
  });
});
afterEach(async () => {
  metrics.close();
  await host.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Value by name and labels, as they are written. */
const scrape = async () => {
  const text = await metrics.text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const values = new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
  return { text, values, of: (series: string) => values.get(series) };
};

test('calls, their outcomes and durations, states, cache and restarts are reported', async () => {
  metrics = createMetrics(host, {
    ingress: () => ({ clients: { legacy: 2, modern: 1 }, httpAnswers: { 2: 40, 4: 3 } }),
  });
  for (let i = 0; i < 3; i++) await host.call('plain', 'note', { nonce: `${i}` });
  for (let i = 0; i < 4; i++) await host.call('kept', 'note', { nonce: 'same' });
  await failureOf(host.call('mortal', 'note', { nonce: 'x' }));
  const stranger = { id: 'eve', role: 'none', scopes: [] };
  for (let i = 0; i < 5; i++) await failureOf(host.call(`made"up\n${i}`, 'note', {}, { principal: stranger }));
  await eventually(
    'a restart is counted',
    async () => ((await scrape()).of('hostler_server_restarts_total{server="mortal"}') ?? 0) > 0,
  );

  const { of, values, text } = await scrape();
  expect(of('hostler_calls_total{server="plain",outcome="ok"}')).toBe(3);
  expect(of('hostler_calls_total{server="kept",outcome="ok"}')).toBe(4);
  expect(of('hostler_calls_total{server="mortal",outcome="outcome_uncertain"}')).toBe(1);
  expect(of('hostler_calls_total{server="",outcome="denied"}')).toBe(5);
  expect(of('hostler_call_duration_seconds_count{server="plain"}')).toBe(3);
  expect(of('hostler_call_duration_seconds_bucket{server="plain",le="+Inf"}')).toBe(3);
  expect(of('hostler_call_duration_seconds_sum{server="plain"}')).toBeGreaterThan(0);
  expect(of('hostler_call_duration_seconds_count{server="resting"}')).toBeUndefined();
  expect(of('hostler_server_state{server="plain",state="ready"}')).toBe(1);
  expect(of('hostler_server_state{server="plain",state="parked"}')).toBe(0);
  expect(of('hostler_server_state{server="resting",state="registered"}')).toBe(1);
  expect(of('hostler_breaker_state{server="plain",state="closed"}')).toBe(1);
  expect(of('hostler_calls_in_flight{server="plain"}')).toBe(0);
  expect(of('hostler_queue_depth{server="plain"}')).toBe(0);
  expect(of('hostler_cache_hits_total')).toBe(3);
  expect(of('hostler_cache_entries')).toBe(1);
  expect(of('hostler_cache_bytes')).toBeGreaterThan(0);
  expect(of('hostler_sessions{era="legacy"}')).toBe(2);
  expect(of('hostler_sessions{era="modern"}')).toBe(1);
  expect(of('hostler_http_requests_total{status="2xx"}')).toBe(40);
  expect(of('hostler_http_requests_total{status="5xx"}')).toBe(0);
  expect(of('process_resident_memory_bytes')).toBeGreaterThan(1e6);
  expect(of('hostler_event_loop_utilization')).toBeLessThanOrEqual(1);
  expect([...values.keys()].filter((series) => series.includes('made'))).toEqual([]);
  expect(text).not.toContain('made');

  // A histogram goes up from bucket to bucket.
  const buckets = [...values].filter(([series]) =>
    series.startsWith('hostler_call_duration_seconds_bucket{server="kept"'),
  );
  expect(buckets.map(([, value]) => value)).toEqual(buckets.map(([, value]) => value).sort((a, b) => a - b));
});

const brokerFigures: BrokerFigures = {
  ...{ isConnected: true, connectedWorkers: 5, waiting: 2, running: 1, oldestMs: 1_500, replyBytes: 9 },
  ...{ calls: 3, repeated: 4, expired: 5, denied: 6, refused: 7, uncertain: 8 },
};

test('the broker is shown: connected workers, waiting, running, the oldest call, uncertain ones', async () => {
  metrics = createMetrics(host, { broker: () => brokerFigures });
  const { of } = await scrape();
  const shown = ['connected', 'workers', 'queue_depth', 'calls_in_flight', 'oldest_call_seconds', 'reply_bytes'];
  expect(shown.map((name) => of(`hostler_broker_${name}`))).toEqual([1, 5, 2, 1, 1.5, 9]);
  const outcomes = ['received', 'repeated', 'expired', 'denied', 'refused', 'uncertain'];
  expect(outcomes.map((outcome) => of(`hostler_broker_calls_total{outcome="${outcome}"}`))).toEqual([3, 4, 5, 6, 7, 8]);
});

test('every metric of the table has its type and help, and metrics of others are not changed', async () => {
  metrics = createMetrics(host, { broker: () => brokerFigures });
  await host.call('plain', 'note', { nonce: '1' });
  const auth = {
    state: 'granted',
    needsLogin: false,
    grant: 'code',
    refreshes: { ok: 1 },
    expiresAt: '2030-01-01T00:00:00Z',
  } as const;
  const rows = host.status();
  vi.spyOn(host, 'status').mockImplementation(() => rows.map((row) => ({ ...row, auth })));
  const { text } = await scrape();
  expect([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type])).toEqual(
    metricTable.map(({ name, type }) => [name, type]),
  );
  for (const { name, labels } of metricTable) {
    const [line] = text.split('\n').filter((each) => each.startsWith(`${name}{`) || each.startsWith(`${name}_bucket{`));
    const found = [...(line ?? '').matchAll(/(\w+)="/g)].map(([, label]) => label).filter((label) => label !== 'le');
    expect([name, found]).toEqual([name, labels]);
  }
  expect(metrics.contentType).toBe(Registry.PROMETHEUS_CONTENT_TYPE);
  expect(register.getMetricsAsArray()).toEqual([]);
});

test('simultaneous scrapes are one, and nothing is counted after the end', async () => {
  metrics = createMetrics(host);
  expect(metrics.text()).toBe(metrics.text());
  await metrics.text();
  metrics.close();
  await host.call('plain', 'note', { nonce: '1' });
  expect((await scrape()).of('hostler_calls_total{server="plain",outcome="ok"}')).toBeUndefined();
});

test('prom-client is loaded by the first scrape, and not before', async () => {
  metrics = createMetrics(host);
  const source = new URL('../../dist/gateway/metrics/metrics.js', import.meta.url).href;
  const code = `
    import { createRequire } from 'node:module';
    const { createMetrics } = await import(${JSON.stringify(source)});
    const loaded = () => Object.keys(createRequire(import.meta.url).cache).some((file) => file.includes('prom-client'));
    const host = { on: () => () => {}, meterCalls: () => {}, status: () => [], cacheStats: () => ({ hits: 0, misses: 0, entries: 0, bytes: 0 }) };
    const metrics = createMetrics(host);
    const before = loaded();
    await metrics.text();
    console.log(before, loaded());`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code]);
  expect(stdout).toBe('false true\n');
});
