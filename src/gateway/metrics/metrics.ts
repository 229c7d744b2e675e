/**
 * What `/metrics` answers: a host and its ingresses as Prometheus reads them.
 * Not here: what there is to read (metric-table.ts), counting (call-meter.ts), serving it (http/).
 *
 * Invariants: the path of a call only counts; all else is done when somebody scrapes, and prom-client is not even loaded
 * before. The registry is our own, so that an embedder's is left alone.
 */
import type { EventLoopUtilization } from 'node:perf_hooks';
import type { Metric } from 'prom-client';
import type { Host } from '../../host/host.js';
import type { BrokerFigures } from './broker-figures.js';
import { CallMeter } from './call-meter.js';
import type { IngressFigures } from './ingress-figures.js';
import { type MetricRow, metricTable, type Seen } from './metric-table.js';

export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8';

export interface Metrics {
  readonly contentType: string;
  /** All of them as they are now. Who asks while another is being told is told the same. */
  text(): Promise<string>;
  /** Stops counting. */
  close(): void;
}

export interface MetricsOptions {
  /** Asked with each scrape. Absent: there is no ingress, and nothing came in. */
  readonly ingress?: () => IngressFigures;
  readonly broker?: (() => BrokerFigures | undefined) | undefined;
}

const noIngress: IngressFigures = { legacySessions: 0, modernStreams: 0, httpAnswers: {} };

export function createMetrics(
  host: Pick<Host, 'on' | 'meterCalls' | 'status' | 'cacheStats'>,
  { ingress = () => noIngress, broker }: MetricsOptions = {},
): Metrics {
  const meter = new CallMeter();
  const offs = [() => host.meterCalls(undefined), host.on('restart', ({ server }) => meter.restarted(server))];
  host.meterCalls((server, outcome, durationMs) => meter.called(server, outcome, durationMs));
  let lastLoop: EventLoopUtilization | undefined;
  const look = (): Seen => {
    const rows = host.status();
    const loop = performance.eventLoopUtilization();
    const since = lastLoop ? performance.eventLoopUtilization(loop, lastLoop) : loop;
    lastLoop = loop;
    return {
      rows,
      figures: meter.figures(rows.map(({ name }) => name)),
      cache: host.cacheStats(),
      ingress: ingress(),
      broker: broker?.(),
      process: processFacts(since.utilization),
    };
  };
  let registry: Promise<(seen: Seen) => Promise<string>> | undefined;
  let telling: Promise<string> | undefined;
  const tell = async (): Promise<string> => {
    try {
      registry ??= openRegistry();
      const write = await registry;
      return await write(look());
    } finally {
      telling = undefined;
    }
  };
  return {
    contentType: metricsContentType,
    text() {
      telling ??= tell();
      return telling;
    },
    close() {
      for (const off of offs) off();
    },
  };
}

/** What writes down what was seen. */
async function openRegistry(): Promise<(seen: Seen) => Promise<string>> {
  const { Registry } = await import('prom-client');
  const registry = new Registry();
  let seen: Seen;
  for (const row of metricTable) registry.registerMetric(asMetric(row, () => seen));
  return (now) => {
    seen = now;
    return registry.metrics();
  };
}

/**
 * The part of a metric that a registry uses. Its own classes count by themselves, which is done already; and its histogram
 * cannot be told its counts.
 */
const asMetric = ({ name, help, type, read }: MetricRow, seen: () => Seen): Metric =>
  ({ name, help, type, get: () => Promise.resolve({ name, help, type, values: read(seen()) }) }) as unknown as Metric;

function processFacts(loopUtilization: number): Seen['process'] {
  const { rss, heapUsed, heapTotal } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return {
    rssBytes: rss,
    heapUsedBytes: heapUsed,
    heapTotalBytes: heapTotal,
    cpuSeconds: (user + system) / 1e6,
    startedAtSeconds: performance.timeOrigin / 1_000,
    loopUtilization,
  };
}
