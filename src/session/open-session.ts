/**
 * From nothing to a session: opens the channel, finds the era, and takes the detours the field needs — a server that exits
 * at an unknown first question is started once more in the old way, an HTTP server that refuses both eras is tried over
 * HTTP+SSE, and what was remembered of a server is forgotten when it no longer holds.
 * A start is one process where the era is known. Only the first failed start of a server may use a second process, for the
 * other era: a server in a crash loop would otherwise cost two processes each time.
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
  const known = eras?.get(eraKey);
  const failedStarts = eras?.failedStarts(eraKey) ?? 0;
  const isGuess = known !== 'legacy' && triesOtherEra(failedStarts);
  let attempt: Attempt | undefined = { variant: 'default', era: onlyEra ?? firstEra(known, failedStarts) };
  for (const tried = new Set<string>(); ; ) {
    tried.add(JSON.stringify(attempt));
    const outcome = await openOnce(options, attempt, startedAtMs);
    if (outcome instanceof Session) {
      // A session in a guessed era does not show which era the server prefers: the next start asks.
      eras?.opened(eraKey, isGuess && attempt.era === 'legacy' ? undefined : outcome.facts.era);
      return outcome;
    }
    attempt = detour(outcome, attempt, options, failedStarts);
    if (attempt && !tried.has(JSON.stringify(attempt))) continue;
    if (outcome.kind === 'stdio' && disagrees(outcome)) eras?.startFailed(eraKey);
    // One that has spoken MCP before is not judged: a proxy may answer in its place while it restarts.
    throw known === undefined ? judgeStart(outcome.error, options.server) : outcome.error;
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

/** Every third start of a server that keeps failing tries the other era: the server may have been replaced. */
const triesOtherEra = (failedStarts: number): boolean => failedStarts % 3 === 2;

function firstEra(known: Era | undefined, failedStarts: number): Era | undefined {
  if (!triesOtherEra(failedStarts)) return known;
  return known === 'legacy' ? undefined : 'legacy';
}

/** What else to try in this start, if anything. */
function detour(
  failed: FailedAttempt,
  { variant, era }: Attempt,
  { mayFallBack = true, onlyEra }: OpenSessionOptions,
  failedStarts: number,
): Attempt | undefined {
  if (onlyEra || !disagrees(failed)) return undefined;
  // After the first failed start each start is one process, unless the server answers a guessed era with an error.
  const isGuessAnswered = triesOtherEra(failedStarts) && !hasExited(failed);
  if (failed.kind === 'stdio' && failedStarts > 0 && !isGuessAnswered) return undefined;
  if (hasExited(failed)) return era === undefined ? { variant, era: 'legacy' } : undefined;
  if (isRefused(failed) && mayFallBack && era !== 'modern') return { variant: 'http-sse', era: 'legacy' };
  // What was remembered may be out of date: the server was replaced.
  return era === undefined ? undefined : { variant: 'default', era: undefined };
}

/** Whether the era may be the cause of the failure. */
const disagrees = (failed: FailedAttempt): boolean =>
  hasExited(failed) || isRefused(failed) || (isHostError(failed.error) && failed.error.code === 'protocol_error');

const isRefused = ({ error, kind }: FailedAttempt): boolean =>
  kind === 'streamable-http' && isHostError(error) && refusesWords(error.details.httpStatus);

function hasExited({ error, kind }: FailedAttempt): boolean {
  if (kind !== 'stdio' || !isHostError(error)) return false;
  const { reason, exitCode } = error.details;
  // A shell that found no command would find none in the old way either.
  return reason === 'exit' && exitCode !== 126 && exitCode !== 127;
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

const endsChannel: ReadonlySet<unknown> = new Set(['exit', 'stdin_closed', 'stdout_closed']);

/**
 * A start that ran into its time limit says so, rather than naming the question that happened to be open; and what ended
 * the whole channel, which knows the server's last words, says more than what ended one request.
 */
function startError(error: unknown, peer: Peer | undefined, { server, startTimeoutMs }: OpenSessionOptions): unknown {
  if (!isHostError(error)) return error;
  // On a busy machine the broken pipe of a server that exits is seen before its exit.
  if (endsChannel.has(error.details.reason)) return peer?.closedBy ?? error;
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
