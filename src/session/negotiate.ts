/**
 * Finds out, on a connection that is already open, which era the server speaks, and opens it.
 *
 * A pipe: `server/discover` first, then `initialize` on the same pipe when that is answered with anything but modern words.
 * A server that is slow to start answers neither for a while, so after a silence `initialize` is sent behind the
 * unanswered question instead of in its place. HTTP: the same question, but a 4xx is an answer too.
 * Not here: respawning a server that exits at the question, or falling back to HTTP+SSE (open-session.ts).
 */
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Era } from '../wire/channel.js';
import { memberBytes, memberString } from '../wire/json-members.js';
import type { Answer, Peer } from '../wire/peer.js';
import { parseMember, readRpcError, resultOf } from './answers.js';
import type { ClientTexts } from './client-identity.js';
import { isLegacyVersion, isModernError, LEGACY_VERSIONS, META, MODERN_ERRORS, MODERN_VERSION } from './versions.js';

/** What the server said of itself, byte for byte. */
export interface ServerFacts {
  readonly era: Era;
  readonly version: string;
  readonly capabilities: Buffer;
  readonly serverInfo: Buffer | undefined;
  readonly instructions: string | undefined;
  /** The whole `initialize` or `server/discover` result. */
  readonly raw: Buffer;
}

export interface Negotiation {
  readonly server: string;
  readonly peer: Peer;
  readonly texts: ClientTexts;
  readonly clock: Clock;
  readonly deadlineAtMs: number;
  readonly signal: AbortSignal | undefined;
  readonly remembered: Era | undefined;
  readonly clean: (text: string) => string;
}

/** How long a pipe may stay silent at `server/discover` before `initialize` is sent behind it. */
const probeSilenceMs = 2_000;

/** A 4xx refuses the words we used; these few say only "not you" or "not now". */
const notAboutWords = [401, 403, 407, 408, 425, 429];
export const refusesWords = (status: number | undefined): boolean =>
  status !== undefined && status >= 400 && status < 500 && !notAboutWords.includes(status);

export async function negotiate(context: Negotiation): Promise<ServerFacts> {
  if (context.remembered === 'legacy') return initialize(context);
  const discovered = await discover(context);
  if (discovered === 'legacy') return initialize(context);
  return discovered;
}

/** The modern facts, or `legacy`. */
async function discover(context: Negotiation): Promise<ServerFacts | 'legacy'> {
  const { peer, texts, deadlineAtMs, signal } = context;
  const question = peer.request('server/discover', `{"_meta":{${texts.metaMembers}}}`, {
    deadlineAtMs,
    signal,
    uncancellable: true,
  });
  if (peer.channel.kind === 'stdio' || peer.channel.kind === 'memory') return discoverOnPipe(context, question);
  try {
    return judge(context, await question);
  } catch (error) {
    const status = isHostError(error) ? error.details.httpStatus : undefined;
    if (!refusesWords(status)) throw error;
    return 'legacy';
  }
}

async function discoverOnPipe(context: Negotiation, question: Promise<Answer>): Promise<ServerFacts | 'legacy'> {
  const { clock } = context;
  let cancelTimer = () => {};
  const silence = new Promise<'silence'>((resolve) => {
    cancelTimer = clock.at(clock.nowMs() + probeSilenceMs, () => resolve('silence'));
  });
  try {
    const first = await Promise.race([question, silence]);
    if (first !== 'silence') return judge(context, first);
  } finally {
    cancelTimer();
  }
  // Both questions are in the pipe now; the server answers them in order once it is up. Whichever verdict comes first holds.
  const opened = initialize(context);
  const judged = question.then((answer) => judge(context, answer));
  const verdict = await Promise.race([
    opened,
    judged.then(
      (facts) => (facts === 'legacy' ? opened : facts),
      () => opened,
    ),
  ]);
  opened.catch(() => {});
  return verdict;
}

/** What an answer to `server/discover` says about the server. */
function judge(context: Negotiation, answer: Answer): ServerFacts | 'legacy' {
  const { server } = context;
  if (answer.kind === 'error') {
    const { code, data } = readRpcError(answer.bytes);
    if (!isModernError(code)) return 'legacy';
    if (code !== MODERN_ERRORS.unsupportedVersion) resultOf(answer, server, 'server/discover', context.clean);
    return agreeOn(context, data && parseMember(data, 'supported'), undefined);
  }
  return agreeOn(context, parseMember(answer.bytes, 'supportedVersions'), answer.bytes);
}

function agreeOn({ server, peer }: Negotiation, offered: unknown, raw: Buffer | undefined): ServerFacts | 'legacy' {
  const versions = Array.isArray(offered)
    ? offered.filter((version): version is string => typeof version === 'string')
    : [];
  if (raw && versions.includes(MODERN_VERSION)) {
    peer.adopt({ era: 'modern', version: MODERN_VERSION });
    return modernFacts(raw);
  }
  if (versions.some(isLegacyVersion)) return 'legacy';
  throw new HostError('protocol_error', `server '${server}' speaks no protocol version that Hostler speaks`, {
    server,
    reason: 'no_common_version',
    hint: `Hostler speaks ${[MODERN_VERSION, ...LEGACY_VERSIONS].join(', ')}`,
  });
}

function modernFacts(raw: Buffer): ServerFacts {
  const kept = Buffer.from(raw);
  const meta = memberBytes(kept, '_meta');
  return {
    era: 'modern',
    version: MODERN_VERSION,
    capabilities: memberBytes(kept, 'capabilities') ?? Buffer.from('{}'),
    serverInfo: meta && memberBytes(meta, META.serverInfo),
    instructions: memberString(kept, 'instructions'),
    raw: kept,
  };
}

/** Opens a legacy connection; also used again when an HTTP server has forgotten our session. */
export async function initialize(context: Negotiation): Promise<ServerFacts> {
  const { server, peer, texts, deadlineAtMs, signal } = context;
  const answer = await peer.request('initialize', texts.initialize, { deadlineAtMs, signal, uncancellable: true });
  const raw = Buffer.from(resultOf(answer, server, 'initialize', context.clean));
  const version = memberString(raw, 'protocolVersion') ?? '';
  if (!isLegacyVersion(version)) {
    throw new HostError(
      'protocol_error',
      `server '${server}' answered initialize with protocol version '${context.clean(version)}'`,
      {
        server,
        reason: 'no_common_version',
        hint: `Hostler speaks ${[MODERN_VERSION, ...LEGACY_VERSIONS].join(', ')}`,
      },
    );
  }
  peer.adopt({ era: 'legacy', version });
  peer.notify('notifications/initialized');
  peer.channel.openServerStream?.();
  return {
    era: 'legacy',
    version,
    capabilities: memberBytes(raw, 'capabilities') ?? Buffer.from('{}'),
    serverInfo: memberBytes(raw, 'serverInfo'),
    instructions: memberString(raw, 'instructions'),
    raw,
  };
}
