/**
 * From nothing to a session: opens the channel, finds the era, and takes the two detours the field needs — a server that
 * exits at an unknown first question is started once more in the old way, and an HTTP server that refuses both eras is
 * tried over HTTP+SSE.
 * Invariant: whatever fails on the way, nothing that was opened is left behind.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Channel, Era } from '../wire/channel.js';
import { Peer, type PeerHandlers } from '../wire/peer.js';
import { type ClientIdentity, clientTexts } from './client-identity.js';
import type { LivenessPlan } from './liveness.js';
import { initialize, type Negotiation, negotiate, refusesWords, type ServerFacts } from './negotiate.js';
import { Session } from './session.js';
import type { EraMemory } from './versions.js';

/** `http-sse` is asked for only after streamable HTTP was refused. */
export type OpenChannel = (variant: 'default' | 'http-sse') => Promise<Channel>;

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
  readonly signal?: AbortSignal | undefined;
  readonly handlers?: PeerHandlers | undefined;
  readonly liveness?: LivenessPlan | undefined;
  /** Redacts and neutralises what a server said before it is quoted. */
  readonly clean: (text: string) => string;
}

export async function openSession(options: OpenSessionOptions): Promise<Session> {
  const { server, eras } = options;
  const eraKey = options.eraKey ?? server;
  const startedAtMs = options.clock.nowMs();
  const deadlineAtMs = startedAtMs + options.startTimeoutMs;
  const remembered = eras?.get(eraKey);
  const attempt = (variant: 'default' | 'http-sse', era: Era | undefined) =>
    openOnce(options, variant, era, startedAtMs, deadlineAtMs);
  const opened = await attempt('default', remembered)
    .catch((error: unknown) => {
      if (!(error instanceof FailedStart)) throw error;
      if (error.wants === 'respawn' && remembered === undefined) return attempt('default', 'legacy');
      if (error.wants === 'http-sse') return attempt('http-sse', 'legacy');
      throw error;
    })
    .catch((error: unknown) => {
      throw error instanceof FailedStart ? error.cause : error;
    });
  eras?.set(eraKey, opened.facts.era);
  return opened;
}

/** Why a start failed, and which detour may still help. */
class FailedStart extends Error {
  readonly wants: 'respawn' | 'http-sse' | undefined;
  constructor(cause: unknown, wants: 'respawn' | 'http-sse' | undefined) {
    super('start failed', { cause });
    this.wants = wants;
  }
}

async function openOnce(
  options: OpenSessionOptions,
  variant: 'default' | 'http-sse',
  remembered: Era | undefined,
  startedAtMs: number,
  deadlineAtMs: number,
): Promise<Session> {
  const { server, clock, clean, signal, handlers, liveness } = options;
  const channel = await options.open(variant);
  const peer = new Peer(server, channel, clock, handlers);
  const texts = clientTexts(options.client);
  const context: Negotiation = { server, peer, texts, clock, deadlineAtMs, signal, remembered, clean };
  let facts: ServerFacts;
  try {
    facts = await negotiate(context);
  } catch (error) {
    await peer.close();
    throw new FailedStart(startError(error, peer, options), detourFor(error, peer));
  }
  const renew = () => {
    channel.resetSession?.();
    return initialize({ ...context, signal: undefined, deadlineAtMs: clock.nowMs() + options.startTimeoutMs });
  };
  const startedInMs = clock.nowMs() - startedAtMs;
  return new Session({ server, peer, clock, texts, facts, clean, startedInMs, liveness, renew });
}

function detourFor(error: unknown, peer: Peer): FailedStart['wants'] {
  if (!isHostError(error)) return undefined;
  const { reason, httpStatus } = error.details;
  if (peer.channel.kind === 'stdio' && reason === 'exit' && !peer.heard) return 'respawn';
  return peer.channel.kind === 'streamable-http' && refusesWords(httpStatus) ? 'http-sse' : undefined;
}

/**
 * A start that ran into its time limit says so, rather than naming the question that happened to be open; and what ended
 * the whole channel, which knows the server's last words, says more than what ended one request.
 */
function startError(error: unknown, peer: Peer, { server, startTimeoutMs }: OpenSessionOptions): unknown {
  if (!isHostError(error)) return error;
  if (error.details.reason === 'exit') return peer.closedBy ?? error;
  if (error.code !== 'timeout') return error;
  return new HostError('timeout', `server '${server}' did not become ready within ${startTimeoutMs} ms`, {
    server,
    reason: 'start_timeout',
    limit: startTimeoutMs,
    execution: 'not_executed',
    hint: 'look at its stderr; if it is only slow, raise timeouts.start',
    cause: error,
  });
}
