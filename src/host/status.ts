/**
 * One row of `status`: the current facts of a server.
 * Invariant: nothing is cached here. Facts of a run (process, protocol) are set only while its connection is open.
 */
import type { Listings } from '../catalog/listings.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Circuit } from '../policy/breaker.js';
import type { CachedCall, ResponseCache } from '../policy/cache.js';
import type { PinCounts, Pins } from '../policy/pins.js';
import type { ServerThrottle } from '../policy/throttles.js';
import type { AuthDescription } from '../session/auth/auth-provider.js';
import type { Connector } from '../session/connector.js';
import type { Session } from '../session/session.js';
import type { Registry } from '../supervisor/registry.js';
import type { Snapshot } from '../supervisor/snapshot.js';
import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import type { Channel } from '../wire/channel.js';
import type { ChannelCounters } from '../wire/envelope.js';
import type { Instances } from './instances.js';
import type { ManagedServer } from './managed-server.js';

export interface StatusRow {
  readonly name: string;
  /** The name as the configuration writes it; `name` is its slug. */
  readonly label: string;
  readonly state: Snapshot['state'];
  /** Start of this state; ISO 8601, like all times here. */
  readonly since: string;
  readonly forMs: number;
  readonly run: number;
  /** Transport of the open connection, or the configured one if none is open. */
  readonly transport: Channel['kind'] | 'auto';
  /** Process id of the current run; null for an attached server. */
  readonly pid: number | null | undefined;
  readonly uptimeMs: number | undefined;
  readonly protocolVersion: string | undefined;
  /** Account as reported by the token provider; at most 200 characters, redacted. */
  readonly authIdentity: string | undefined;
  /** Login of a server over HTTP; undefined: it needs none, or its token is configured. */
  readonly auth: AuthDescription | undefined;
  readonly lazy: boolean;
  readonly card: string | undefined;
  readonly active: boolean;
  readonly refCount: number;
  /** Parts of `refCount`. */
  readonly leases: { readonly bindings: number; readonly calls: number };
  /** Tool calls that were sent to the server, or waited for it, since the host started. */
  readonly calls: number;
  readonly running: number;
  readonly queue: number;
  readonly restartCount: number;
  readonly consecutiveFailures: number;
  readonly circuit: Circuit;
  /** Time until requests are sent again, after the server asked for fewer requests. */
  readonly throttledForMs: number | undefined;
  /** True if the server is not probed until a reload (`onExhausted: "eject"`). */
  readonly ejected: boolean;
  readonly nextProbeAt: string | undefined;
  /** Undefined: no probe is planned. */
  readonly nextProbeInMs: number | undefined;
  readonly lastError:
    | { readonly code: string; readonly message: string; readonly at: string; readonly agoMs: number }
    | undefined;
  readonly lastSuccessAt: string | undefined;
  readonly lastSuccessAgoMs: number | undefined;
  readonly tools: number;
  /** Why its tools could not be read the last time. Calls to the server are still possible. */
  readonly toolsError: string | undefined;
  /** Why its entry in the configuration was refused; such a server is disabled. */
  readonly problem: { readonly message: string; readonly hint: string | undefined } | undefined;
  /** Number of tools that differ from their approved version. */
  readonly changedTools: number;
  /** What the operator should know about its lists, one sentence each. */
  readonly notes: readonly string[];
  /** Resource templates that a gateway does not route at `/mcp`; undefined: none. */
  readonly unroutedTemplates: UnroutedTemplates | undefined;
  readonly cacheEntries: number;
  /** True if more than twenty stdout lines in the last minute were not JSON-RPC messages. */
  readonly noisy: boolean;
  /** Notifications to the server that were dropped or refused in this run; undefined if the transport cannot lose any. */
  readonly noticesLost: number | undefined;
  /**
   * Requests and log messages of this run that reached no client, because several requests could have caused them. Always 0
   * with `isolation: "per-client"`.
   */
  readonly unattributed: number | undefined;
  /** Processes that left the process group and still run after a stop. */
  readonly escaped: number;
  readonly instances: number;
  /** End of stderr, at most 2 KiB, redacted; undefined without a process. */
  readonly stderrTail: string | undefined;
}

export interface UnroutedTemplates {
  readonly count: number;
  /** The first 2,000, each with the reason. */
  readonly templates: readonly { readonly template: string; readonly reason: string }[];
}

export type UnroutedOf = (server: string) => UnroutedTemplates | undefined;

interface StatusSources {
  readonly clock: Clock;
  readonly registry: Pick<Registry<unknown>, 'list' | 'held'>;
  readonly serverOf: (name: string) => ManagedServer;
  readonly cache: Pick<ResponseCache<CachedCall>, 'entriesOf'>;
  readonly pins: Pick<Pins, 'countsOf'>;
  readonly listings: Pick<Listings, 'notesOf'>;
  readonly connector: Pick<Connector, 'escapedOf' | 'clean'>;
  readonly instances: Pick<Instances, 'countOf'>;
  readonly serverThrottle: Pick<ServerThrottle, 'leftMs'>;
  readonly routing?: { readonly unroutedOf: UnroutedOf | undefined };
}

interface Instant {
  readonly nowMs: number;
  readonly date: Date;
}

const identityChars = 200;
const identityReadChars = 8 * 1024;
const stderrChars = 2 * 1024;
/** More than is shown: redaction must see a multi-line key from its first line on. */
const stderrReadBytes = 8 * 1024;

export function statusRows(sources: StatusSources): StatusRow[] {
  const instant = instantOf(sources.clock);
  return sources.registry.list().map(({ name }) => statusRow(name, sources, instant));
}

export function statusRow(name: string, sources: StatusSources, instant = instantOf(sources.clock)): StatusRow {
  const managed = sources.serverOf(name);
  const { supervisor, load, tools, definition } = managed;
  const { binding: bindings, call: calls } = sources.registry.held(name);
  const { nowMs } = instant;
  const { circuit, failures } = managed.circuitStatus(nowMs);
  const snapshot = supervisor.snapshot();
  const { lastError, lastSuccessAtMs, nextProbeAtMs } = snapshot;
  const current = supervisor.current;
  return {
    name,
    label: definition.label,
    state: snapshot.state,
    since: wallTime(snapshot.sinceMs, instant),
    forMs: nowMs - snapshot.sinceMs,
    run: snapshot.run,
    transport: current?.connection.channel.kind ?? plannedTransport(managed),
    uptimeMs: current && nowMs - current.sinceMs,
    protocolVersion: current?.connection.facts.version,
    authIdentity: identityOf(managed, sources),
    auth: managed.auth?.describe(),
    lazy: definition.isLazy,
    card: definition.card,
    active: snapshot.state === 'ready' || snapshot.state === 'suspect',
    refCount: bindings + calls,
    leases: { bindings, calls },
    calls: load.calls,
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
    tools: tools.reduce((count, { key }) => (key === '' ? count : count + 1), 0),
    toolsError: managed.toolsError?.message,
    problem: definition.problem,
    changedTools: changedTools(sources.pins.countsOf(name)),
    notes: [...pinNotes(managed, sources.pins.countsOf(name)), ...sources.listings.notesOf(name)],
    unroutedTemplates: sources.routing?.unroutedOf?.(name),
    cacheEntries: sources.cache.entriesOf(name),
    noticesLost: noticesLost(current?.connection),
    unattributed: current?.connection.unattributed,
    escaped: sources.connector.escapedOf(name),
    instances: sources.instances.countOf(name),
    ...processFacts(managed, current?.connection),
  };
}

const changedTools = ({ changed = 0, renamed = 0 }: PinCounts): number => changed + renamed;

/** Each note ends with the command that shows the differences. */
function pinNotes({ definition: { name, pins } }: ManagedServer, counts: PinCounts): string[] {
  const { reworded = 0, new: fresh = 0 } = counts;
  const note = (count: number, what: string) =>
    count === 0 ? [] : [`${count} ${count === 1 ? 'tool' : 'tools'} ${what}: hostler approve ${name}`];
  return [
    ...note(changedTools(counts), pins.onChange === 'block' ? 'changed and blocked' : 'changed'),
    ...(pins.onFirstSight === 'block' ? note(fresh, 'new and blocked') : []),
    ...note(reworded, 'with new wording, which is not shown to clients'),
  ];
}

/** The identity may contain a token, so it is redacted before it is cut. */
function identityOf({ auth }: ManagedServer, { connector }: StatusSources): string | undefined {
  const identity = auth?.identity()?.slice(0, identityReadChars);
  return identity === undefined ? undefined : neutraliseLine(connector.clean(identity), identityChars);
}

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
  const { pid, exit, noisy, stderr } = channel.describe();
  return { pid: exit ? undefined : pid, noisy, stderrTail: lastLines(stderr.tail(stderrReadBytes)) };
}

/** Cuts at the start of a line, if that leaves any text. */
function lastLines(text: string): string {
  if (text.length <= stderrChars) return text;
  const end = text.slice(-stderrChars);
  return end.slice(end.indexOf('\n') + 1) || end;
}

function noticesLost(session: Session | undefined): number | undefined {
  const counters: (ChannelCounters & { readonly noticesLost?: number }) | undefined = session?.channel.counters;
  return counters?.noticesLost;
}
