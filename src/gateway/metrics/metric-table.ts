/**
 * The table of all metrics. docs/metrics.md describes their use; a test compares both.
 * Not here: counting (call-meter.ts), the text of `/metrics` (metrics.ts).
 * Invariant: label values are bounded. The registry bounds servers, fixed lists bound the others.
 */
import type { BrokerStatus, LogUsage } from '../../host/broker-status.js';
import type { StatusRow } from '../../host/status.js';
import type { Circuit } from '../../policy/breaker.js';
import type { CacheStats } from '../../policy/cache.js';
import { ERAS } from '../eras/eras.js';
import { bucketsMs, outcomes, type ServerCounts } from './call-meter.js';

/** The counts of one ingress, or of all together, for metrics. */
export interface IngressFigures {
  /** Open sessions by era; in an era without sessions, open streams of `subscriptions/listen`. */
  readonly clients: Readonly<Record<string, number>>;
  /** Answered HTTP requests by the first digit of their status. */
  readonly httpAnswers: Readonly<Record<number, number>>;
}

export type BrokerFigures = Omit<
  BrokerStatus,
  'engine' | 'unlistedRoles' | 'tooLarge' | Exclude<keyof LogUsage, 'replyBytes'>
>;

const statusClasses = [1, 2, 3, 4, 5];

export function addFigures(all: readonly IngressFigures[]): IngressFigures {
  const httpAnswers: Record<number, number> = {};
  for (const each of all) {
    for (const digit of statusClasses) httpAnswers[digit] = (httpAnswers[digit] ?? 0) + (each.httpAnswers[digit] ?? 0);
  }
  return {
    clients: Object.fromEntries(
      ERAS.map(({ name }) => [name, all.reduce((sum, { clients }) => sum + (clients[name] ?? 0), 0)]),
    ),
    httpAnswers,
  };
}

export interface Scrape {
  readonly rows: readonly StatusRow[];
  readonly counts: ReadonlyMap<string, ServerCounts>;
  readonly cache: CacheStats;
  readonly ingress: IngressFigures;
  /** Undefined: Hostler runs without a broker. */
  readonly broker: BrokerFigures | undefined;
  readonly process: {
    readonly rssBytes: number;
    readonly heapUsedBytes: number;
    readonly heapTotalBytes: number;
    readonly cpuSeconds: number;
    readonly startedAtSeconds: number;
    /** Busy share of the event loop since the last scrape, 0 to 1. */
    readonly loopUtilization: number;
  };
}

interface Sample {
  /** Name with the suffix of a histogram series, such as `_bucket`. */
  readonly metricName?: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

export interface MetricRow {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: readonly string[];
  readonly help: string;
  read(scrape: Scrape): Sample[];
}

const row =
  (type: MetricRow['type']) =>
  (name: string, labels: readonly string[], help: string, read: MetricRow['read']): MetricRow => ({
    name,
    type,
    labels,
    help,
    read,
  });
const counter = row('counter');
const gauge = row('gauge');
const histogram = row('histogram');

const states = Object.keys({
  disabled: true,
  stopped: true,
  registered: true,
  connecting: true,
  ready: true,
  suspect: true,
  closing: true,
  backing_off: true,
  parked: true,
  ejected: true,
  auth_required: true,
  stopping: true,
} satisfies Record<StatusRow['state'], true>);
const loginStates = Object.keys({
  none: true,
  pending: true,
  granted: true,
  refreshing: true,
  step_up: true,
  dead: true,
  locked: true,
} satisfies Record<NonNullable<StatusRow['auth']>['state'], true>);
const circuits = Object.keys({ closed: true, open: true, half_open: true } satisfies Record<Circuit, true>);

const one = (value: number): Sample[] => [{ labels: {}, value }];
const perServer =
  (column: 'running' | 'queue') =>
  ({ rows }: Scrape): Sample[] =>
    rows.map((each) => ({ labels: { server: each.name }, value: each[column] }));
const perState =
  (all: readonly string[], column: 'state' | 'circuit') =>
  ({ rows }: Scrape): Sample[] =>
    rows.flatMap((each) =>
      all.map((state) => ({ labels: { server: each.name, state }, value: each[column] === state ? 1 : 0 })),
    );
const refreshes = ({ rows }: Scrape): Sample[] =>
  rows.flatMap(({ name: server, auth }) =>
    Object.entries(auth?.refreshes ?? {}).map(([result, value]) => ({ labels: { server, result }, value })),
  );

const logins = ({ rows }: Scrape): Sample[] => {
  const found = rows.flatMap(({ auth }) => auth?.state ?? []);
  const count = (state: string) => found.filter((each) => each === state).length;
  return found.length === 0 ? [] : loginStates.map((state) => ({ labels: { state }, value: count(state) }));
};

const tokenExpiry = ({ rows }: Scrape): Sample[] =>
  rows.flatMap(({ name: server, auth }) =>
    auth?.expiresAt === undefined ? [] : [{ labels: { server }, value: Date.parse(auth.expiresAt) / 1_000 }],
  );

type BrokerFigure = 'isConnected' | 'connectedWorkers' | 'running' | 'waiting' | 'replyBytes';
const ofBroker = (figure: BrokerFigure) => (scrape: Scrape) =>
  scrape.broker ? one(Number(scrape.broker[figure])) : [];

/** Omits outcomes without calls: servers times outcomes are many series, and most stay at 0. */
const callsByOutcome = ({ counts }: Scrape): Sample[] =>
  [...counts].flatMap(([server, own]) =>
    outcomes.flatMap((outcome, i) => {
      const value = own.outcomes[i] as number;
      return value > 0 ? [{ labels: { server, outcome }, value }] : [];
    }),
  );

const durations = 'hostler_call_duration_seconds';

function durationSamples(server: string, { buckets, calls, sumMs }: ServerCounts): Sample[] {
  let below = 0;
  const samples = bucketsMs.map((endMs, i) => {
    below += buckets[i] as number;
    return { metricName: `${durations}_bucket`, labels: { server, le: endMs / 1_000 }, value: below };
  });
  return [
    ...samples,
    { metricName: `${durations}_bucket`, labels: { server, le: '+Inf' }, value: calls },
    { metricName: `${durations}_sum`, labels: { server }, value: sumMs / 1_000 },
    { metricName: `${durations}_count`, labels: { server }, value: calls },
  ];
}

const sessions = ({ ingress }: Scrape): Sample[] =>
  Object.entries(ingress.clients).map(([era, value]) => ({ labels: { era }, value }));

const brokerCalls = ({ broker }: Scrape): Sample[] =>
  broker
    ? [
        { labels: { outcome: 'received' }, value: broker.calls },
        { labels: { outcome: 'repeated' }, value: broker.repeated },
        { labels: { outcome: 'expired' }, value: broker.expired },
        { labels: { outcome: 'denied' }, value: broker.denied },
        { labels: { outcome: 'refused' }, value: broker.refused },
        { labels: { outcome: 'uncertain' }, value: broker.uncertain },
      ]
    : [];

const oldestCall = ({ broker }: Scrape): Sample[] => (broker ? one((broker.oldestMs ?? 0) / 1_000) : []);

export const metricTable: readonly MetricRow[] = [
  counter('hostler_calls_total', ['server', 'outcome'], 'Tool calls that ended, by outcome.', callsByOutcome),
  histogram(durations, ['server'], 'Duration of calls, waiting included.', ({ counts }) =>
    [...counts].flatMap(([server, own]) => (own.calls > 0 ? durationSamples(server, own) : [])),
  ),
  gauge('hostler_calls_in_flight', ['server'], 'Calls that a server is running.', perServer('running')),
  gauge('hostler_queue_depth', ['server'], 'Calls in the queue of a server.', perServer('queue')),
  gauge(
    'hostler_server_state',
    ['server', 'state'],
    '1 for the state of a server, 0 for the others.',
    perState(states, 'state'),
  ),
  counter('hostler_server_restarts_total', ['server'], 'Restarts after a failed run.', ({ counts, rows }) =>
    rows.map(({ name }) => ({ labels: { server: name }, value: counts.get(name)?.restarts ?? 0 })),
  ),
  gauge(
    'hostler_breaker_state',
    ['server', 'state'],
    '1 for the state of the breaker of a server, 0 for the others.',
    perState(circuits, 'circuit'),
  ),
  counter(
    'hostler_auth_refresh_total',
    ['server', 'result'],
    'Refresh requests for the token of a server, by result.',
    refreshes,
  ),
  gauge('hostler_auth_grants', ['state'], 'Servers over HTTP by the state of their login.', logins),
  gauge(
    'hostler_auth_token_expiry_seconds',
    ['server'],
    'End of the token of a server, in seconds since 1970.',
    tokenExpiry,
  ),
  counter('hostler_cache_hits_total', [], 'Calls answered from the cache.', ({ cache }) => one(cache.hits)),
  counter('hostler_cache_misses_total', [], 'Calls that the cache had no answer for.', ({ cache }) =>
    one(cache.misses),
  ),
  gauge('hostler_cache_entries', [], 'Answers in the cache.', ({ cache }) => one(cache.entries)),
  gauge('hostler_cache_bytes', [], 'Bytes of the answers in the cache.', ({ cache }) => one(cache.bytes)),
  gauge('hostler_sessions', ['era'], 'Open legacy sessions, and open modern subscription streams.', sessions),
  counter('hostler_http_requests_total', ['status'], 'HTTP requests answered, by class of status.', ({ ingress }) =>
    statusClasses.map((digit) => ({ labels: { status: `${digit}xx` }, value: ingress.httpAnswers[digit] ?? 0 })),
  ),
  gauge(
    'hostler_broker_connected',
    [],
    '1 while workers can be served, 0 while NATS is not reached.',
    ofBroker('isConnected'),
  ),
  counter(
    'hostler_broker_calls_total',
    ['outcome'],
    'Calls of workers: all received, and of those the repeated, expired, denied, refused and uncertain ones.',
    brokerCalls,
  ),
  gauge('hostler_broker_workers', [], 'Connected workers.', ofBroker('connectedWorkers')),
  gauge('hostler_broker_calls_in_flight', [], 'Calls of workers that are running.', ofBroker('running')),
  gauge('hostler_broker_queue_depth', [], 'Calls of workers that are received and not begun.', ofBroker('waiting')),
  gauge(
    'hostler_broker_oldest_call_seconds',
    [],
    'Age of the oldest call that waits or runs; 0 if there is none.',
    oldestCall,
  ),
  gauge(
    'hostler_broker_reply_bytes',
    [],
    'Bytes of replies in the log that are not acknowledged.',
    ofBroker('replyBytes'),
  ),
  gauge(
    'hostler_event_loop_utilization',
    [],
    'Share of the time since the last scrape in which the event loop was busy, 0 to 1.',
    ({ process }) => one(process.loopUtilization),
  ),
  gauge('process_resident_memory_bytes', [], 'Resident memory.', ({ process }) => one(process.rssBytes)),
  counter('process_cpu_seconds_total', [], 'CPU time, user and system.', ({ process }) => one(process.cpuSeconds)),
  gauge('process_start_time_seconds', [], 'Start of the process, in seconds since 1970.', ({ process }) =>
    one(process.startedAtSeconds),
  ),
  gauge('nodejs_heap_size_used_bytes', [], 'Heap in use.', ({ process }) => one(process.heapUsedBytes)),
  gauge('nodejs_heap_size_total_bytes', [], 'Heap taken from the system.', ({ process }) =>
    one(process.heapTotalBytes),
  ),
];
