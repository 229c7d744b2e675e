/**
 * Every metric there is: its name, its labels, and how its values are read from what is known at the moment of a scrape.
 * docs/metrics.md says what each is good for, and a test holds the two in step.
 * Not here: counting (call-meter.ts), writing it out (metrics.ts).
 *
 * Invariant: labels are bounded: servers by the registry, mailboxes by the keys, everything else by a list of ours.
 */
import type { StatusRow } from '../../host/status.js';
import type { Circuit } from '../../policy/breaker.js';
import type { CacheStats } from '../../policy/cache.js';
import type { BrokerFigures } from './broker-figures.js';
import { bucketsMs, outcomes, type ServerFigures } from './call-meter.js';
import { type IngressFigures, statusClasses } from './ingress-figures.js';

/** Everything that a scrape looks at. */
export interface Seen {
  readonly rows: readonly StatusRow[];
  readonly figures: ReadonlyMap<string, ServerFigures>;
  readonly cache: CacheStats;
  readonly ingress: IngressFigures;
  /** Undefined: nobody on another machine is served. */
  readonly broker: BrokerFigures | undefined;
  readonly process: {
    readonly rssBytes: number;
    readonly heapUsedBytes: number;
    readonly heapTotalBytes: number;
    readonly cpuSeconds: number;
    readonly startedAtSeconds: number;
    /** Part of the time since the last look in which the event loop was busy. */
    readonly loopUtilization: number;
  };
}

export interface Sample {
  /** With the suffix of a histogram's part. */
  readonly metricName?: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

export interface MetricRow {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: readonly string[];
  readonly help: string;
  read(seen: Seen): Sample[];
}

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
const circuits = Object.keys({ closed: true, open: true, half_open: true } satisfies Record<Circuit, true>);

const one = (value: number): Sample[] => [{ labels: {}, value }];
const perServer = (seen: Seen, pick: (row: StatusRow) => number): Sample[] =>
  seen.rows.map((row) => ({ labels: { server: row.name }, value: pick(row) }));
const oneOf = (seen: Seen, label: string, all: readonly string[], pick: (row: StatusRow) => string): Sample[] =>
  seen.rows.flatMap((row) =>
    all.map((each) => ({ labels: { server: row.name, [label]: each }, value: pick(row) === each ? 1 : 0 })),
  );

const ofBroker = (pick: (broker: BrokerFigures) => number) => (seen: Seen) =>
  seen.broker ? one(pick(seen.broker)) : [];
const ofInside = (pick: (inside: NonNullable<BrokerFigures['inside']>) => number) => (seen: Seen) =>
  seen.broker?.inside ? one(pick(seen.broker.inside)) : [];

const durations = 'hostler_call_duration_seconds';

function durationSamples(server: string, figures: ServerFigures): Sample[] {
  let below = 0;
  const buckets = bucketsMs.map((endMs, i) => {
    below += figures.buckets[i] as number;
    return { metricName: `${durations}_bucket`, labels: { server, le: endMs / 1_000 }, value: below };
  });
  return [
    ...buckets,
    { metricName: `${durations}_bucket`, labels: { server, le: '+Inf' }, value: figures.calls },
    { metricName: `${durations}_sum`, labels: { server }, value: figures.sumMs / 1_000 },
    { metricName: `${durations}_count`, labels: { server }, value: figures.calls },
  ];
}

export const metricTable: readonly MetricRow[] = [
  {
    name: 'hostler_calls_total',
    type: 'counter',
    labels: ['server', 'outcome'],
    help: 'Calls of tools that ended, by outcome.',
    // Only what has happened: servers times outcomes are many, and most of them never do.
    read: ({ figures }) =>
      [...figures].flatMap(([server, of]) =>
        outcomes.flatMap((outcome, i) => {
          const value = of.outcomes[i] as number;
          return value > 0 ? [{ labels: { server, outcome }, value }] : [];
        }),
      ),
  },
  {
    name: durations,
    type: 'histogram',
    labels: ['server'],
    help: 'How long calls took, waiting included.',
    read: ({ figures }) => [...figures].flatMap(([server, of]) => (of.calls > 0 ? durationSamples(server, of) : [])),
  },
  {
    name: 'hostler_calls_in_flight',
    type: 'gauge',
    labels: ['server'],
    help: 'Calls that a server is working on.',
    read: (seen) => perServer(seen, ({ running }) => running),
  },
  {
    name: 'hostler_queue_depth',
    type: 'gauge',
    labels: ['server'],
    help: 'Calls that wait for their turn.',
    read: (seen) => perServer(seen, ({ queue }) => queue),
  },
  {
    name: 'hostler_server_state',
    type: 'gauge',
    labels: ['server', 'state'],
    help: 'Which state a server is in: 1 for that one, 0 for the others.',
    read: (seen) => oneOf(seen, 'state', states, ({ state }) => state),
  },
  {
    name: 'hostler_server_restarts_total',
    type: 'counter',
    labels: ['server'],
    help: 'Restarts that followed a failed run.',
    read: ({ figures, rows }) =>
      rows.map(({ name }) => ({ labels: { server: name }, value: figures.get(name)?.restarts ?? 0 })),
  },
  {
    name: 'hostler_breaker_state',
    type: 'gauge',
    labels: ['server', 'circuit'],
    help: 'How the breaker of a server stands: 1 for that, 0 for the others.',
    read: (seen) => oneOf(seen, 'circuit', circuits, ({ circuit }) => circuit),
  },
  {
    name: 'hostler_cache_hits_total',
    type: 'counter',
    labels: [],
    help: 'Calls that were answered from the cache.',
    read: ({ cache }) => one(cache.hits),
  },
  {
    name: 'hostler_cache_misses_total',
    type: 'counter',
    labels: [],
    help: 'Calls that were looked for in the cache and not found.',
    read: ({ cache }) => one(cache.misses),
  },
  {
    name: 'hostler_cache_entries',
    type: 'gauge',
    labels: [],
    help: 'Answers in the cache.',
    read: ({ cache }) => one(cache.entries),
  },
  {
    name: 'hostler_cache_bytes',
    type: 'gauge',
    labels: [],
    help: 'Bytes of the answers in the cache.',
    read: ({ cache }) => one(cache.bytes),
  },
  {
    name: 'hostler_sessions',
    type: 'gauge',
    labels: ['era'],
    help: 'Open sessions of legacy clients, and open subscription streams of modern ones.',
    read: ({ ingress }) => [
      { labels: { era: 'legacy' }, value: ingress.legacySessions },
      { labels: { era: 'modern' }, value: ingress.modernStreams },
    ],
  },
  {
    name: 'hostler_http_requests_total',
    type: 'counter',
    labels: ['status'],
    help: 'HTTP requests that were answered, by class of status.',
    read: ({ ingress }) =>
      statusClasses.map((digit) => ({ labels: { status: `${digit}xx` }, value: ingress.httpAnswers[digit] ?? 0 })),
  },
  {
    name: 'hostler_broker_connected',
    type: 'gauge',
    labels: [],
    help: 'Whether the broker is there: 1, or 0.',
    read: ofBroker(({ isConnected }) => (isConnected ? 1 : 0)),
  },
  {
    name: 'hostler_broker_calls_total',
    type: 'counter',
    labels: ['outcome'],
    help: 'Calls of workers that came in, and of those the ones that were not run.',
    read: ({ broker }) =>
      broker
        ? [
            { labels: { outcome: 'taken' }, value: broker.calls },
            { labels: { outcome: 'repeated' }, value: broker.repeated },
            { labels: { outcome: 'expired' }, value: broker.expired },
            { labels: { outcome: 'denied' }, value: broker.denied },
          ]
        : [],
  },
  {
    name: 'hostler_broker_calls_in_flight',
    type: 'gauge',
    labels: [],
    help: 'Calls of workers that run.',
    read: ofBroker(({ callsRunning }) => callsRunning),
  },
  {
    name: 'hostler_broker_queue_depth',
    type: 'gauge',
    labels: [],
    help: 'Calls of workers that wait for their turn at the host.',
    read: ofBroker(({ callsWaiting }) => callsWaiting),
  },
  {
    name: 'hostler_broker_connections',
    type: 'gauge',
    labels: [],
    help: 'Workers and hosts that are connected.',
    read: ofInside(({ connections }) => connections),
  },
  {
    name: 'hostler_broker_mailbox_messages',
    type: 'gauge',
    labels: ['mailbox'],
    help: 'Messages that wait or are handed out, by mailbox.',
    read: ({ broker }) =>
      (broker?.inside?.mailboxes ?? []).map(({ mailbox, count }) => ({ labels: { mailbox }, value: count })),
  },
  {
    name: 'hostler_broker_redeliveries_total',
    type: 'counter',
    labels: [],
    help: 'Messages that were handed out again.',
    read: ofInside(({ redeliveries }) => redeliveries),
  },
  {
    name: 'hostler_broker_dead_letters',
    type: 'gauge',
    labels: [],
    help: 'Messages that could not be delivered.',
    read: ofInside(({ deadLetters }) => deadLetters),
  },
  {
    name: 'hostler_event_loop_utilization',
    type: 'gauge',
    labels: [],
    help: 'Part of the time since the last scrape in which the event loop was busy, 0 to 1.',
    read: ({ process }) => one(process.loopUtilization),
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    labels: [],
    help: 'Resident memory.',
    read: ({ process }) => one(process.rssBytes),
  },
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    labels: [],
    help: 'CPU time, user and system.',
    read: ({ process }) => one(process.cpuSeconds),
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    labels: [],
    help: 'When the process started, in seconds since 1970.',
    read: ({ process }) => one(process.startedAtSeconds),
  },
  {
    name: 'nodejs_heap_size_used_bytes',
    type: 'gauge',
    labels: [],
    help: 'Heap in use.',
    read: ({ process }) => one(process.heapUsedBytes),
  },
  {
    name: 'nodejs_heap_size_total_bytes',
    type: 'gauge',
    labels: [],
    help: 'Heap taken from the system.',
    read: ({ process }) => one(process.heapTotalBytes),
  },
];
