/**
 * Opens a session: opens the channel, negotiates the era, and makes further attempts for special servers. A server that exits
 * at an unknown first request is started once more in the oldest era. An HTTP server that refuses every era is tried over
 * HTTP+SSE. A remembered era that no longer works is dropped.
 * Only the first failed start may use a second process: otherwise a server in a crash loop would cost two processes each time.
 * Invariant: a failed attempt leaves nothing open, and `handlers.closed` is called for sessions only.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import type { Channel } from '../wire/channel.js';
import { Peer } from '../wire/peer.js';
import type { PeerHandlers } from '../wire/peer-interface.js';
import type { EraMemory } from './eras/eras.js';
import { eraNamed, httpSseEra, oldestEra } from './eras/eras.js';
import type { ClientIdentity, ServerEra } from './eras/server-era.js';
import type { LivenessPlan } from './liveness.js';
import { type Negotiation, negotiate } from './negotiate.js';
import { refusesProtocol } from './rpc-response.js';
import { Session, type SessionHandlers } from './session.js';
import { notMcpError, startError } from './start-error.js';

interface OpenLimits {
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
}

type Variant = 'default' | 'http-sse';

/** `http-sse` is used only after streamable HTTP was refused. */
export type OpenChannel = (variant: Variant, limits: OpenLimits) => Promise<Channel>;

export interface OpenSessionOptions {
  readonly server: string;
  readonly open: OpenChannel;
  readonly client: ClientIdentity;
  readonly clock: Clock;
  /** Time limit for opening and negotiating together. */
  readonly startTimeoutMs: number;
  readonly eras?: EraMemory | undefined;
  /** Key of the server in `eras`; default: its name. */
  readonly eraKey?: string | undefined;
  /** The transport allows only this era: nothing is negotiated. */
  readonly onlyEra?: ServerEra | undefined;
  /** HTTP+SSE may be tried after streamable HTTP was refused. */
  readonly mayFallBack?: boolean | undefined;
  readonly signal?: CancelSignal | undefined;
  /** False: all requests belong to one client. Default: true. */
  readonly isShared?: boolean | undefined;
  readonly handlers?: SessionHandlers | undefined;
  /** Called before `handlers.closed`. */
  readonly onClosed?: ((session: Session) => void) | undefined;
  readonly liveness?: LivenessPlan | undefined;
  readonly clean: (text: string) => string;
}

export async function openSession(options: OpenSessionOptions): Promise<Session> {
  const { eras, clock, onlyEra, server } = options;
  const eraKey = options.eraKey ?? server;
  const startedAtMs = clock.nowMs();
  const knownName = eras?.get(eraKey);
  const known = knownName === undefined ? undefined : eraNamed(knownName);
  const failedStarts = eras?.failedStarts(eraKey) ?? 0;
  const isGuess = known !== oldestEra && triesOtherEra(failedStarts);
  let attempt: Attempt | undefined = { variant: 'default', era: onlyEra ?? firstEra(known, failedStarts) };
  for (const tried = new Set<string>(); ; ) {
    tried.add(keyOf(attempt));
    const outcome = await openOnce(options, attempt, startedAtMs);
    if (outcome instanceof Session) {
      // A session in a guessed era does not show which era the server prefers: the next start negotiates.
      eras?.opened(eraKey, isGuess && attempt.era === oldestEra ? undefined : outcome.facts.era);
      return outcome;
    }
    attempt = detour(outcome, attempt, options, failedStarts);
    if (attempt && !tried.has(keyOf(attempt))) continue;
    if (outcome.kind === 'stdio' && mayBeEra(outcome)) eras?.startFailed(eraKey);
    // A server that spoke MCP before never gets `not_mcp`: a proxy may answer in its place while it restarts.
    throw known === undefined ? notMcpError(outcome.error, server) : outcome.error;
  }
}

interface Attempt {
  readonly variant: Variant;
  readonly era: ServerEra | undefined;
}

const keyOf = ({ variant, era }: Attempt): string => `${variant} ${era?.name}`;

interface FailedAttempt {
  readonly error: unknown;
  readonly kind: Channel['kind'] | undefined;
}

/** Every third start of a server that keeps failing tries the other era: the server may have been replaced. */
const triesOtherEra = (failedStarts: number): boolean => failedStarts % 3 === 2;

function firstEra(known: ServerEra | undefined, failedStarts: number): ServerEra | undefined {
  if (!triesOtherEra(failedStarts)) return known;
  return known === oldestEra ? undefined : oldestEra;
}

/** Next attempt of this start. Undefined: none. */
function detour(
  failed: FailedAttempt,
  { variant, era }: Attempt,
  { mayFallBack = true, onlyEra }: OpenSessionOptions,
  failedStarts: number,
): Attempt | undefined {
  if (onlyEra || !mayBeEra(failed)) return undefined;
  // After the first failed start each start is one process, unless the server answers a guessed era with an error.
  const isGuessAnswered = triesOtherEra(failedStarts) && !hasExited(failed);
  if (failed.kind === 'stdio' && failedStarts > 0 && !isGuessAnswered) return undefined;
  if (hasExited(failed)) return era === undefined ? { variant, era: oldestEra } : undefined;
  const maySpeakSse = era === undefined || era.hasHttpSse;
  if (isRefused(failed) && mayFallBack && maySpeakSse) return { variant: 'http-sse', era: httpSseEra };
  // The remembered era may be wrong, because the server may have been replaced.
  return era === undefined ? undefined : { variant: 'default', era: undefined };
}

/** True: the era may be the cause of the failure. */
const mayBeEra = (failed: FailedAttempt): boolean =>
  hasExited(failed) || isRefused(failed) || (isHostError(failed.error) && failed.error.code === 'protocol_error');

const isRefused = ({ error, kind }: FailedAttempt): boolean =>
  kind === 'streamable-http' && isHostError(error) && refusesProtocol(error.details.httpStatus);

function hasExited({ error, kind }: FailedAttempt): boolean {
  if (kind !== 'stdio' || !isHostError(error)) return false;
  const { reason, exitCode } = error.details;
  // A shell that found no command would find none in another era either.
  return reason === 'exit' && exitCode !== 126 && exitCode !== 127;
}

async function openOnce(
  options: OpenSessionOptions,
  attempt: Attempt,
  startedAtMs: number,
): Promise<Session | FailedAttempt> {
  const { server, clock, client, clean, signal, handlers = {}, liveness, startTimeoutMs } = options;
  const deadlineAtMs = startedAtMs + startTimeoutMs;
  let peer: Peer | undefined;
  let session: Session | undefined;
  try {
    const channel = await options.open(attempt.variant, { deadlineAtMs, signal });
    const own: Required<Omit<PeerHandlers, 'request'>> = {
      ...forwardHandlers(handlers),
      closed: (error) => {
        if (!session) return;
        options.onClosed?.(session);
        handlers.closed?.(error);
      },
      sessionMaybeLost: () => session?.sessionMaybeLost(),
      stalled: (activity) => session?.stalled(activity),
    };
    peer = new Peer(server, channel, clock, own, { isShared: options.isShared });
    const context: Negotiation = { server, peer, client, clock, deadlineAtMs, signal, newest: attempt.era, clean };
    const facts = await negotiate(context);
    const newest = eraNamed(facts.era);
    const renew = () =>
      negotiate({ ...context, newest, signal: undefined, deadlineAtMs: clock.nowMs() + startTimeoutMs });
    const startedInMs = clock.nowMs() - startedAtMs;
    session = new Session({ server, peer, clock, client, facts, clean, startedInMs, liveness, handlers, renew });
    return session;
  } catch (error) {
    await peer?.close();
    return { error: startError(error, peer, server, startTimeoutMs), kind: peer?.channel.kind };
  }
}

type Forwarded = Required<Omit<SessionHandlers, 'request'>> & Pick<SessionHandlers, 'request'>;

/**
 * Handlers that forward every event, for code that overrides some of them. Each handler is looked up when it is called, because
 * it may be a method or be set later. A new member of SessionHandlers does not compile until it is forwarded here.
 */
export function forwardHandlers(to: SessionHandlers): Forwarded {
  const all: Required<SessionHandlers> = {
    request: (request) => to.request?.(request),
    notification: (notification) => to.notification?.(notification),
    closed: (error) => to.closed?.(error),
    handlerError: (error) => to.handlerError?.(error),
    unattributed: (method) => to.unattributed?.(method),
    missed: () => to.missed?.(),
    answered: () => to.answered?.(),
    renewed: () => to.renewed?.(),
  };
  if (to.request) return all;
  // Without a handler the peer itself refuses requests of the server, so `request` must be absent.
  const { request, ...others } = all;
  return others;
}
