/**
 * One row of `status`: what is true of a server at this instant, from those who know it.
 * Invariant: every field is read when it is asked for, and nothing is kept here; what belongs to a run (its process, its
 * protocol) is there only while that run can be spoken to.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Circuit } from '../policy/breaker.js';
import type { CachedCall, ResponseCache } from '../policy/cache.js';
import type { Pins } from '../policy/pins.js';
import type { ServerThrottle } from '../policy/server-throttle.js';
import type { Connector } from '../session/connector.js';
import type { Session } from '../session/session.js';
import type { Registry } from '../supervisor/registry.js';
import type { Snapshot } from '../supervisor/snapshot.js';
import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import type { Channel, ChannelCounters } from '../wire/channel.js';
import type { Instances } from './instances.js';
import type { ManagedServer } from './managed-server.js';

export interface StatusRow {
  readonly name: string;
  readonly state: Snapshot['state'];
  /** When it entered this state, by the wall; ISO 8601, as all times here. */
  readonly since: string;
  /** How long it has been in this state. */
  readonly forMs: number;
  /** The number of its newest run. */
  readonly run: number;
  /** How it is spoken to; while it is not running, how it is to be. */
  readonly transport: Channel['kind'] | 'auto';
  /** Pid of its process, while that runs; null for an attached server, which has no process of Hostler's. */
  readonly pid: number | null | undefined;
  /** How long this run has been open. */
  readonly uptimeMs: number | undefined;
  readonly protocolVersion: string | undefined;
  /** As whom we are known to it, as its provider of tokens says; at most 200 characters, redacted and neutralised. */
  readonly authIdentity: string | undefined;
  readonly lazy: boolean;
  /** URL or path of its card, as configured. */
  readonly card: string | undefined;
  readonly active: boolean;
  readonly refCount: number;
  /** What `refCount` is made of: who holds it open, and calls under way. */
  readonly leases: { readonly bindings: number; readonly calls: number };
  readonly running: number;
  readonly queue: number;
  readonly restartCount: number;
  readonly consecutiveFailures: number;
  readonly circuit: Circuit;
  /** How long nothing is sent to it because it asked for fewer requests; undefined when it did not. */
  readonly throttledForMs: number | undefined;
  /** No longer probed: `onExhausted: "eject"` has taken it out of use until a reload. */
  readonly ejected: boolean;
  readonly nextProbeAt: string | undefined;
  /** From now; undefined when nothing is planned. */
  readonly nextProbeInMs: number | undefined;
  readonly lastError:
    | { readonly code: string; readonly message: string; readonly at: string; readonly agoMs: number }
    | undefined;
  readonly lastSuccessAt: string | undefined;
  readonly lastSuccessAgoMs: number | undefined;
  readonly tools: number;
  /** Tools that differ from what was approved. */
  readonly changedTools: number;
  /** Resource templates of it that a gateway matches no URI against at `/mcp`; undefined when there are none. */
  readonly unroutedTemplates: UnroutedTemplates | undefined;
  readonly cacheEntries: number;
  /** More than twenty lines in the last minute that are no messages. */
  readonly noisy: boolean;
  /** Notices to it that were dropped or refused, in this run; undefined where none can get lost. */
  readonly noticesLost: number | undefined;
  /**
   * Questions and log lines of it that reached no client in this run, because several requests could be behind them; with
   * `isolation: "per-client"` there are none. Undefined while it does not run.
   */
  readonly unattributed: number | undefined;
  /** Processes that left its group, were found when it was stopped, and still run. */
  readonly escaped: number;
  /** Instances that clients have of their own (`isolation: "per-client"`). */
  readonly instances: number;
  /** The end of what its process wrote to stderr, at most 2 KiB, redacted and neutralised; undefined without a process. */
  readonly stderrTail: string | undefined;
}

export interface UnroutedTemplates {
  readonly count: number;
  /** The first of them, at most 2,000, each with the reason why it is not routed. */
  readonly templates: readonly { readonly template: string; readonly reason: string }[];
}

/** What a gateway tells the host about the templates of one server. */
export type UnroutedOf = (server: string) => UnroutedTemplates | undefined;

/** Those who know it. */
export interface StatusSources {
  readonly clock: Clock;
  readonly registry: Pick<Registry<unknown>, 'list' | 'held'>;
  readonly serverOf: (name: string) => ManagedServer;
  readonly cache: Pick<ResponseCache<CachedCall>, 'entriesOf'>;
  readonly pins: Pick<Pins, 'differingOf'>;
  readonly connector: Pick<Connector, 'escapedOf' | 'clean'>;
  readonly instances: Pick<Instances, 'countOf'>;
  readonly serverThrottle: Pick<ServerThrottle, 'leftMs'>;
  /** Without a gateway nothing is routed, and nothing is left out. */
  readonly routing?: { readonly unroutedOf: UnroutedOf | undefined };
}

interface Instant {
  readonly nowMs: number;
  readonly date: Date;
}

const identityChars = 200;
const identityReadChars = 8 * 1024;
const stderrChars = 2 * 1024;
/** Cleaned as a whole before it is cut, so that a key of several lines is recognised from its first one on. */
const stderrReadBytes = 8 * 1024;

/** Ordered by server name. */
export function statusRows(sources: StatusSources): StatusRow[] {
  const instant = instantOf(sources.clock);
  return sources.registry.list().map(({ name }) => statusRow(name, sources, instant));
}

export function statusRow(name: string, sources: StatusSources, instant = instantOf(sources.clock)): StatusRow {
  const managed = sources.serverOf(name);
  const { supervisor, load, tools, definition } = managed;
  const { binding: bindings, call: calls } = sources.registry.held(name);
  const { nowMs } = instant;
  const { circuit, failures } = managed.circuitNow(nowMs);
  const snapshot = supervisor.snapshot();
  const { lastError, lastSuccessAtMs, nextProbeAtMs } = snapshot;
  const current = supervisor.current;
  return {
    name,
    state: snapshot.state,
    since: wallTime(snapshot.sinceMs, instant),
    forMs: nowMs - snapshot.sinceMs,
    run: snapshot.run,
    transport: current?.connection.channel.kind ?? plannedTransport(managed),
    uptimeMs: current && nowMs - current.sinceMs,
    protocolVersion: current?.connection.facts.version,
    authIdentity: identityOf(managed, sources),
    lazy: definition.isLazy,
    card: definition.card,
    active: snapshot.state === 'ready' || snapshot.state === 'suspect',
    refCount: bindings + calls,
    leases: { bindings, calls },
    running: load.running,
    queue: load.waiting,
    restartCount: snapshot.restarts,
    consecutiveFailures: failures,
    circuit,
    throttledForMs: sources.serverThrottle.leftMs(name),
    ejected: snapshot.ejected,
    nextProbeAt: nextProbeAtMs === undefined ? undefined : wallTime(nextProbeAtMs, instant),
    nextProbeInMs: nextProbeAtMs === undefined ? undefined : Math.max(0, nextProbeAtMs - nowMs),
    lastError: lastError
      ? {
          code: lastError.code,
          message: lastError.message,
          at: wallTime(lastError.atMs, instant),
          agoMs: nowMs - lastError.atMs,
        }
      : problemOf(definition, snapshot.sinceMs, instant),
    lastSuccessAt: lastSuccessAtMs === undefined ? undefined : wallTime(lastSuccessAtMs, instant),
    lastSuccessAgoMs: lastSuccessAtMs === undefined ? undefined : nowMs - lastSuccessAtMs,
    tools: tools.length,
    changedTools: sources.pins.differingOf(name),
    unroutedTemplates: sources.routing?.unroutedOf?.(name),
    cacheEntries: sources.cache.entriesOf(name),
    noticesLost: noticesLost(current?.connection),
    unattributed: current?.connection.unattributed,
    escaped: sources.connector.escapedOf(name),
    instances: sources.instances.countOf(name),
    ...processFacts(managed, current?.connection),
  };
}

/** A provider may say anything, also its token: redacted as a whole before it is cut. */
function identityOf({ auth }: ManagedServer, { connector }: StatusSources): string | undefined {
  const said = auth?.identity()?.slice(0, identityReadChars);
  return said === undefined ? undefined : neutraliseLine(connector.clean(said), identityChars);
}

/** What is wrong with the entry, and what to do about it. */
function problemOf({ problem }: ServerDefinition, sinceMs: number, instant: Instant): StatusRow['lastError'] {
  if (!problem) return undefined;
  const { message, hint } = problem;
  return {
    code: 'invalid_spec',
    message: hint === undefined ? message : `${message}; ${hint}`,
    at: wallTime(sinceMs, instant),
    agoMs: instant.nowMs - sinceMs,
  };
}

const instantOf = (clock: Clock): Instant => ({ nowMs: clock.nowMs(), date: clock.date() });

/** A time of the host's clock as an ISO date. */
const wallTime = (atMs: number, { nowMs, date }: Instant): string =>
  new Date(date.getTime() + (atMs - nowMs)).toISOString();

const plannedTransport = ({ definition: { spec, problem } }: ManagedServer): StatusRow['transport'] =>
  problem ? 'auto' : isStdio(spec) ? 'stdio' : spec.transport;

function processFacts(
  { definition }: ManagedServer,
  session: Session | undefined,
): Pick<StatusRow, 'pid' | 'noisy' | 'stderrTail'> {
  if (isAttached(definition.spec)) return { pid: null, noisy: false, stderrTail: undefined };
  const channel = session?.channel;
  if (!(channel instanceof StdioChannel)) return { pid: undefined, noisy: false, stderrTail: undefined };
  const { pid, exit, noisy, stderrTail } = channel.describe();
  return { pid: exit ? undefined : pid, noisy, stderrTail: lastLines(stderrTail(stderrReadBytes)) };
}

/** From the start of a line where that leaves anything. */
function lastLines(text: string): string {
  if (text.length <= stderrChars) return text;
  const end = text.slice(-stderrChars);
  return end.slice(end.indexOf('\n') + 1) || end;
}

function noticesLost(session: Session | undefined): number | undefined {
  const counters: (ChannelCounters & { readonly noticesLost?: number }) | undefined = session?.channel.counters;
  return counters?.noticesLost;
}
