/**
 * Opens a session: opens the channel, negotiates the era, and makes further attempts for special servers. A server that exits
 * at an unknown first request is started once more in the oldest era. An HTTP server that refuses every era is tried over
 * HTTP+SSE. A remembered era that no longer works is dropped.
 * Only the first failed start may use a second process: otherwise a server in a crash loop would cost two processes each time.
 * Invariant: a failed attempt leaves nothing open, and `handlers.closed` is called for sessions only.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { type Clock, sleep } from '../kernel/clock.js';
import { formatDuration } from '../kernel/duration.js';
import { HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';
import { refusesProtocol } from '../transports/http/http-errors.js';
import type { Channel } from '../wire/channel.js';
import { RPC } from '../wire/methods.js';
import { Peer } from '../wire/peer.js';
import type { PeerHandlers } from '../wire/peer-interface.js';
import { ALL_VERSIONS, ERAS, type EraMemory, eraNamed, httpSseEra, oldestEra } from './eras/eras.js';
import {
  type ClientIdentity,
  noCommonVersion,
  type Opening,
  type ServerEra,
  type ServerFacts,
} from './eras/server-era.js';
import type { LivenessPlan } from './liveness.js';
import { Session, type SessionHandlers } from './session.js';

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
    // The peer may have closed before there was a session, and calls `closed` only once.
    if (peer.closedBy) throw peer.closedBy;
    const newest = eraNamed(facts.era);
    const renew = () =>
      negotiate({ ...context, newest, signal: undefined, deadlineAtMs: clock.nowMs() + startTimeoutMs });
    const ask = (askedUntilMs: number) =>
      newest.open({ ...context, versions: ALL_VERSIONS, signal: undefined, deadlineAtMs: askedUntilMs });
    const startedInMs = clock.nowMs() - startedAtMs;
    session = new Session({ server, peer, clock, client, facts, clean, startedInMs, liveness, handlers, renew, ask });
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

interface Negotiation extends Omit<Opening, 'versions'> {
  readonly clock: Clock;
  /** Newest era to try. Undefined: all eras. */
  readonly newest: ServerEra | undefined;
}

/** After this silence of a pipe the request of the next era is sent. */
const silenceMs = 2_000;
const silent = Symbol('silent');

/** An attached transport may be a pipe or use HTTP. Treating it as a pipe costs at most one extra request. */
const pipes: ReadonlySet<Channel['kind']> = new Set(['stdio', 'memory', 'attached']);

/**
 * Finds the era of a server on an open connection, and opens it: eras are tried from the newest on.
 * On a pipe a slow server may be silent at first. So after a silence the request of the next era is sent too, and the answer to
 * the first request still decides. Over HTTP each request waits for its answer.
 * Not here: the opening requests (eras/).
 * Invariant: the peer adopts an era once, when the era is known. The opening requests change nothing.
 */
async function negotiate(context: Negotiation): Promise<ServerFacts> {
  const { peer, newest } = context;
  const eras = newest ? ERAS.slice(ERAS.indexOf(newest)) : ERAS;
  const facts = await open({ ...context, versions: ALL_VERSIONS }, eras);
  const era = eraNamed(facts.era);
  peer.adopt({ era, version: facts.version });
  era.entered?.(peer);
  return facts;
}

async function open(context: Negotiation & Opening, [era, ...older]: readonly ServerEra[]): Promise<ServerFacts> {
  if (!era) throw noCommonVersion(context, 'speaks no protocol version that Hostler speaks');
  const { clock, peer } = context;
  const asked = era.open(context);
  if (older.length === 0 || !pipes.has(peer.channel.kind)) return (await asked) ?? open(context, older);

  const answered = new AbortController();
  const silence = sleep(clock, silenceMs, answered.signal).then(() => silent);
  const first = await Promise.race([asked, silence]).finally(() => answered.abort());
  if (first !== silent) return (first as ServerFacts | undefined) ?? open(context, older);

  // A slow server answers both requests in order, and the answer to the first one wins. A server that ignores the first request
  // is recognised by its answer to the second.
  const opened = open(context, older);
  const judged = asked.then((facts) => facts ?? opened);
  judged.catch(() => {});
  // Both answers may arrive in one chunk: wait one turn of the event loop for the answer to the first request.
  const openedAlone = opened.then(
    (facts) => sleep(clock, 0).then(() => facts),
    () => judged,
  );
  return Promise.race([judged, openedAlone]);
}

/** Reasons of errors that also end the channel. */
const endsChannel: ReadonlySet<unknown> = new Set(['exit', 'stdin_closed', 'stdout_closed']);

/**
 * A start that exceeds its time limit is reported as `start_timeout`, not as a timeout of the request that was open. The error
 * of the channel has the exit code and stderr, so it replaces the error of one request.
 */
function startError(error: unknown, peer: Peer | undefined, server: string, startTimeoutMs: number): unknown {
  if (!isHostError(error)) return error;
  // On a busy machine the broken pipe of an exiting server is seen before its exit.
  if (endsChannel.has(error.details.reason)) return peer?.closedBy ?? error;
  if (error.code !== 'timeout') return error;
  return new HostError('timeout', `server '${server}' did not become ready within ${formatDuration(startTimeoutMs)}`, {
    server,
    reason: 'start_timeout',
    limit: startTimeoutMs,
    execution: 'not_executed',
    hint: 'look at its stderr; if it is only slow, raise timeouts.start',
    cause: error,
  });
}

/** Codes that blame the request. Other codes are problems of the server, such as a database that is not up yet. */
const requestFaults: ReadonlySet<number | undefined> = new Set([
  RPC.parseError,
  RPC.invalidRequest,
  RPC.methodNotFound,
  RPC.invalidParams,
]);

/**
 * Returns a `not_mcp` error for a peer that does not speak MCP, and any other error unchanged. No text of the server is compared.
 * The first responses reveal such a peer: a page instead of JSON, a refusal of every era, or an error that blames the request. A retry
 * cannot change these. A 5xx, a broken connection or silence proves nothing.
 */
function notMcpError(error: unknown, server: string): unknown {
  if (!isHostError(error) || !isNotMcp(error)) return error;
  const { httpStatus, rpcCode } = error.details;
  const facts: HostErrorOptions = {
    server,
    reason: 'not_mcp',
    execution: 'not_executed',
    hint: `check that the command or URL of server '${server}' is that of an MCP server`,
    cause: error,
    ...(httpStatus === undefined ? {} : { httpStatus }),
    ...(rpcCode === undefined ? {} : { rpcCode }),
  };
  return new HostError('protocol_error', `${error.message}: it does not speak MCP`, facts);
}

function isNotMcp({ code, details: { reason, httpStatus, rpcCode } }: HostError): boolean {
  if (code !== 'protocol_error') return false;
  if (reason === 'content_type') return true;
  if (reason === 'http_status') return refusesProtocol(httpStatus);
  return reason === 'rpc_error' && requestFaults.has(rpcCode);
}
