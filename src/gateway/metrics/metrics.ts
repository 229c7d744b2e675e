/**
 * The text of `/metrics` in the format of Prometheus.
 * Not here: the metrics (metric-table.ts), counting (call-meter.ts), the HTTP route (http/).
 * Invariants: a call only increments counters; a scrape does all other work, and the first one loads prom-client.
 * The registry is private, so the embedder's default registry does not change.
 */
import type { EventLoopUtilization } from 'node:perf_hooks';
import type { Metric } from 'prom-client';
import type { Host } from '../../host/host.js';
import { CallMeter } from './call-meter.js';
import {
  addFigures,
  type BrokerFigures,
  type IngressFigures,
  type MetricRow,
  metricTable,
  type Scrape,
} from './metric-table.js';

export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8';

export interface Metrics {
  readonly contentType: string;
  /** Concurrent scrapes share one text. */
  text(): Promise<string>;
  close(): void;
}

const noIngress = addFigures([]);

export function createMetrics(
  host: Pick<Host, 'on' | 'meterCalls' | 'status' | 'cacheStats'>,
  {
    ingress = () => noIngress,
    broker,
  }: { readonly ingress?: () => IngressFigures; readonly broker?: (() => BrokerFigures | undefined) | undefined } = {},
): Metrics {
  const meter = new CallMeter();
  const offs = [() => host.meterCalls(undefined), host.on('restart', ({ server }) => meter.restarted(server))];
  host.meterCalls(meter.called);
  let lastLoop: EventLoopUtilization | undefined;
  const read = (): Scrape => {
    const rows = host.status();
    const loop = performance.eventLoopUtilization();
    const since = lastLoop ? performance.eventLoopUtilization(loop, lastLoop) : loop;
    lastLoop = loop;
    return {
      rows,
      counts: meter.counts(rows.map(({ name }) => name)),
      cache: host.cacheStats(),
      ingress: ingress(),
      broker: broker?.(),
      process: processFacts(since.utilization),
    };
  };
  let registry: ReturnType<typeof openRegistry> | undefined;
  let scraping: Promise<string> | undefined;
  const scrape = async (): Promise<string> => {
    try {
      registry ??= openRegistry();
      const write = await registry;
      return await write(read());
    } finally {
      scraping = undefined;
    }
  };
  return {
    contentType: metricsContentType,
    text() {
      scraping ??= scrape();
      return scraping;
    },
    close() {
      for (const off of offs) off();
    },
  };
}

async function openRegistry(): Promise<(scrape: Scrape) => Promise<string>> {
  const { Registry } = await import('prom-client');
  const registry = new Registry();
  let current: Scrape;
  for (const row of metricTable) registry.registerMetric(asMetric(row, () => current));
  return (scrape) => {
    current = scrape;
    return registry.metrics();
  };
}

/** The result has only the members that a registry uses. The histogram class of prom-client does not accept precomputed counts. */
const asMetric = ({ name, help, type, read }: MetricRow, current: () => Scrape): Metric =>
  ({
    name,
    help,
    type,
    get: () => Promise.resolve({ name, help, type, values: read(current()) }),
  }) as unknown as Metric;

function processFacts(loopUtilization: number): Scrape['process'] {
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
