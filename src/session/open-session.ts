/**
 * From nothing to a session: opens the channel, finds the era, and takes the detours the field needs — a server that exits
 * at an unknown first question is started once more in the old way, an HTTP server that refuses both eras is tried over
 * HTTP+SSE, and what was remembered of a server is forgotten when it no longer holds.
 * Invariant: whatever fails on the way, nothing that was opened is left behind, and `handlers.closed` is told of a session
 * only, never of an attempt.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Channel, Era } from '../wire/channel.js';
import { Peer } from '../wire/peer.js';
import type { PeerHandlers } from '../wire/peer-interface.js';
import { type ClientIdentity, clientTexts } from './client-identity.js';
import { forwardHandlers } from './forward-handlers.js';
import type { LivenessPlan } from './liveness.js';
import { type Negotiation, negotiate, refusesWords, renewSession, type ServerFacts } from './negotiate.js';
import { judgeStart } from './not-mcp.js';
import { Session, type SessionHandlers } from './session.js';
import type { EraMemory } from './versions.js';

export interface OpenLimits {
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
}

export type Variant = 'default' | 'http-sse';

/** `http-sse` is asked for only after streamable HTTP was refused. */
export type OpenChannel = (variant: Variant, limits: OpenLimits) => Promise<Channel>;

export interface OpenSessionOptions {
  readonly server: string;
  readonly open: OpenChannel;
  readonly client: ClientIdentity;
  readonly clock: Clock;
  /** For opening and negotiating together. */
  readonly startTimeoutMs: number;
  readonly eras?: EraMemory | undefined;
  /** What the era is remembered under; the server's name when absent. */
  readonly eraKey?: string | undefined;
  /** The transport allows only this era: no question is asked. */
  readonly onlyEra?: Era | undefined;
  /** Whether HTTP+SSE may be tried after streamable HTTP was refused. */
  readonly mayFallBack?: boolean | undefined;
  readonly signal?: CancelSignal | undefined;
  /** False: it is there for one client only; true when absent. */
  readonly isShared?: boolean | undefined;
  readonly handlers?: SessionHandlers | undefined;
  readonly liveness?: LivenessPlan | undefined;
  /** Redacts and neutralises what a server said before it is quoted. */
  readonly clean: (text: string) => string;
}

export async function openSession(options: OpenSessionOptions): Promise<Session> {
  const { eras, clock, onlyEra } = options;
  const eraKey = options.eraKey ?? options.server;
  const startedAtMs = clock.nowMs();
  const remembered = onlyEra ?? eras?.get(eraKey);
  let attempt: Attempt | undefined = { variant: 'default', era: remembered };
  for (const tried = new Set<string>(); ; ) {
    tried.add(JSON.stringify(attempt));
    const outcome = await openOnce(options, attempt, startedAtMs);
    if (outcome instanceof Session) {
      eras?.set(eraKey, outcome.facts.era);
      return outcome;
    }
    attempt = detour(outcome, attempt, options);
    if (attempt && !tried.has(JSON.stringify(attempt))) continue;
    // One that has spoken MCP before is not judged: a proxy may answer in its place while it restarts.
    const isKnown = eras?.get(eraKey) !== undefined;
    throw isKnown ? outcome.error : judgeStart(outcome.error, options.server);
  }
}

interface Attempt {
  readonly variant: Variant;
  /** What is taken for granted, not asked. */
  readonly era: Era | undefined;
}

interface FailedAttempt {
  readonly error: unknown;
  readonly kind: Channel['kind'] | undefined;
}

/** What else to try, if anything. */
function detour(
  { error, kind }: FailedAttempt,
  { variant, era }: Attempt,
  { mayFallBack = true, onlyEra }: OpenSessionOptions,
): Attempt | undefined {
  if (!isHostError(error) || onlyEra) return undefined;
  const { reason, httpStatus, exitCode } = error.details;
  // A shell that found no command would find none in the old way either.
  const exited = kind === 'stdio' && reason === 'exit' && exitCode !== 126 && exitCode !== 127;
  const refused = kind === 'streamable-http' && refusesWords(httpStatus);
  if (exited && era === undefined) return { variant, era: 'legacy' };
  if (refused && mayFallBack && era !== 'modern') return { variant: 'http-sse', era: 'legacy' };
  // What was remembered may be out of date: the server was replaced.
  const disagrees = exited || refused || error.code === 'protocol_error';
  return era !== undefined && disagrees ? { variant: 'default', era: undefined } : undefined;
}

async function openOnce(
  options: OpenSessionOptions,
  attempt: Attempt,
  startedAtMs: number,
): Promise<Session | FailedAttempt> {
  const { server, clock, clean, signal, handlers = {}, liveness } = options;
  const deadlineAtMs = startedAtMs + options.startTimeoutMs;
  let peer: Peer | undefined;
  let session: Session | undefined;
  try {
    const channel = await options.open(attempt.variant, { deadlineAtMs, signal });
    const own: Required<Omit<PeerHandlers, 'request'>> = {
      ...forwardHandlers(handlers),
      closed: (error) => session && handlers.closed?.(error),
      sessionDoubted: () => session?.sessionDoubted(),
      stalled: (activity) => session?.stalled(activity),
    };
    peer = new Peer(server, channel, clock, own, { isShared: options.isShared });
    const texts = clientTexts(options.client);
    const context: Negotiation = { server, peer, texts, clock, deadlineAtMs, signal, remembered: attempt.era, clean };
    const facts: ServerFacts = await negotiate(context);
    const renew = () =>
      renewSession({ ...context, signal: undefined, deadlineAtMs: clock.nowMs() + options.startTimeoutMs });
    const startedInMs = clock.nowMs() - startedAtMs;
    session = new Session({ server, peer, clock, texts, facts, clean, startedInMs, liveness, handlers, renew });
    return session;
  } catch (error) {
    await peer?.close();
    return { error: startError(error, peer, options), kind: peer?.channel.kind };
  }
}

/**
 * A start that ran into its time limit says so, rather than naming the question that happened to be open; and what ended
 * the whole channel, which knows the server's last words, says more than what ended one request.
 */
function startError(error: unknown, peer: Peer | undefined, { server, startTimeoutMs }: OpenSessionOptions): unknown {
  if (!isHostError(error)) return error;
  if (error.details.reason === 'exit') return peer?.closedBy ?? error;
  if (error.code !== 'timeout') return error;
  return new HostError('timeout', `server '${server}' did not become ready within ${startTimeoutMs} ms`, {
    server,
    reason: 'start_timeout',
    limit: startTimeoutMs,
    execution: 'not_executed',
    hint: 'look at its stderr; if it is only slow, allow it more time to start',
    cause: error,
  });
}
