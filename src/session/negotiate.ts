/**
 * Finds out, on a connection that is already open, which era the server speaks, and opens it.
 *
 * A pipe: `server/discover` first, then `initialize` on the same pipe when that is answered with anything but modern words.
 * A server that is slow to start answers neither for a while, so after a silence `initialize` is sent behind the
 * unanswered question instead of in its place; the answer to the question still decides. HTTP: the same question, but a 4xx
 * is an answer too. An attached transport may be either: it is asked like a pipe, and a 4xx that it reports counts.
 * Not here: respawning a server that exits at the question, or falling back to HTTP+SSE (open-session.ts).
 *
 * Invariant: asking changes nothing. What was agreed is put in force once, by `enter`, when the verdict is there.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { type Clock, sleep } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Era } from '../wire/channel.js';
import { memberBytes, memberString } from '../wire/json-members.js';
import type { Peer } from '../wire/peer.js';
import type { Answer } from '../wire/peer-interface.js';
import { NOTIFICATION } from '../wire/rpc-codes.js';
import { parseMember, quote, readRpcError, resultOf } from './answers.js';
import type { ClientTexts } from './client-identity.js';
import { isLegacyVersion, isModernError, LEGACY_VERSIONS, META, MODERN_ERRORS, MODERN_VERSION } from './versions.js';

/** What the server said of itself, byte for byte. */
export interface ServerFacts {
  readonly era: Era;
  readonly version: string;
  /** A JSON object, whatever the server sent. */
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
  readonly signal: CancelSignal | undefined;
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
  const facts = context.remembered === 'legacy' ? await askInitialize(context) : await findEra(context);
  enter(context.peer, facts);
  return facts;
}

/** Opens the legacy session once more, on an HTTP server that has forgotten it. */
export async function renewSession(context: Negotiation): Promise<ServerFacts> {
  const facts = await askInitialize(context);
  enter(context.peer, facts);
  return facts;
}

function enter(peer: Peer, { era, version }: ServerFacts): void {
  peer.adopt({ era, version });
  if (era === 'modern') return;
  peer.notify(NOTIFICATION.initialized);
  peer.channel.openServerStream?.();
}

async function findEra(context: Negotiation): Promise<ServerFacts> {
  const { kind } = context.peer.channel;
  const question = askDiscover(context);
  if (kind === 'stdio' || kind === 'memory' || kind === 'attached') return findEraOnPipe(context, question);
  const verdict = await question.then((answer) => judge(context, answer)).catch(judgeRefusal);
  return verdict ?? askInitialize(context);
}

const askDiscover = ({ peer, texts, deadlineAtMs, signal }: Negotiation): Promise<Answer> =>
  peer.request('server/discover', `{"_meta":{${texts.metaMembers}}}`, { deadlineAtMs, signal, uncancellable: true });

/** Undefined: an older server. What says nothing about the era is thrown. */
function judgeRefusal(error: unknown): undefined {
  const { httpStatus, rpcCode } = isHostError(error) ? error.details : {};
  if (!refusesWords(httpStatus) || (rpcCode !== undefined && isModernError(rpcCode))) throw error;
  return undefined;
}

async function findEraOnPipe(context: Negotiation, question: Promise<Answer>): Promise<ServerFacts> {
  const answered = new AbortController();
  const silence = sleep(context.clock, probeSilenceMs, answered.signal);
  const answerOrRefusal = question.catch((error: unknown): 'refused' => {
    judgeRefusal(error);
    return 'refused';
  });
  const first = await Promise.race([answerOrRefusal, silence]).finally(() => answered.abort());
  if (first === 'refused') return askInitialize(context);
  if (first) return (await judge(context, first)) ?? askInitialize(context);

  // Both questions are in the pipe now, and a server answers them in order once it is up. The first counts if it is
  // answered at all; a server that ignores it is known by its answer to the second.
  const opened = askInitialize(context);
  const judged = question.then((answer) => judge(context, answer), judgeRefusal).then((facts) => facts ?? opened);
  judged.catch(() => {});
  // A turn of the loop for answers of one chunk: the answer to the question may be right behind.
  const openedAlone = opened.then(
    (facts) => sleep(context.clock, 0).then(() => facts),
    () => judged,
  );
  return Promise.race([judged, openedAlone]);
}

/** What an answer to `server/discover` says about the server; undefined when it is an older one. */
async function judge(context: Negotiation, answer: Answer, isRetry = false): Promise<ServerFacts | undefined> {
  if (answer.kind === 'error') {
    const { code, data } = readRpcError(answer.bytes);
    if (!isModernError(code)) return undefined;
    if (code !== MODERN_ERRORS.unsupportedVersion) resultOf(answer, context.server, 'server/discover', context.clean);
    const supported = data && parseMember(data, 'supported');
    // Refused for the very version that it offers: the protocol has a client try again with a version both speak.
    const isOurs = Array.isArray(supported) && supported.includes(MODERN_VERSION);
    if (isOurs && !isRetry) return judge(context, await askDiscover(context), true);
    return agreeOn(context, supported, undefined);
  }
  const offered = parseMember(answer.bytes, 'supportedVersions');
  // An older server that answers anything with an empty result has not discovered anything.
  return Array.isArray(offered) ? agreeOn(context, offered, answer.bytes) : undefined;
}

function agreeOn({ server }: Negotiation, offered: unknown, raw: Buffer | undefined): ServerFacts | undefined {
  const versions = Array.isArray(offered)
    ? offered.filter((version): version is string => typeof version === 'string')
    : [];
  if (raw && versions.includes(MODERN_VERSION)) return modernFacts(raw);
  if (versions.some(isLegacyVersion)) return undefined;
  throw noCommonVersion(server, 'speaks no protocol version that Hostler speaks');
}

function modernFacts(raw: Buffer): ServerFacts {
  const kept = Buffer.from(raw);
  const meta = memberBytes(kept, '_meta');
  return {
    era: 'modern',
    version: MODERN_VERSION,
    capabilities: capabilitiesOf(kept),
    serverInfo: meta && memberBytes(meta, META.serverInfo),
    instructions: memberString(kept, 'instructions'),
    raw: kept,
  };
}

async function askInitialize(context: Negotiation): Promise<ServerFacts> {
  const { server, peer, texts, deadlineAtMs, signal, clean } = context;
  const answer = await peer.request('initialize', texts.initialize, { deadlineAtMs, signal, uncancellable: true });
  const raw = Buffer.from(resultOf(answer, server, 'initialize', clean));
  const version = memberString(raw, 'protocolVersion') ?? '';
  if (!isLegacyVersion(version)) {
    throw noCommonVersion(server, `answered initialize with protocol version '${quote(version.slice(0, 64), clean)}'`);
  }
  return {
    era: 'legacy',
    version,
    capabilities: capabilitiesOf(raw),
    serverInfo: memberBytes(raw, 'serverInfo'),
    instructions: memberString(raw, 'instructions'),
    raw,
  };
}

function capabilitiesOf(result: Buffer): Buffer {
  const capabilities = memberBytes(result, 'capabilities');
  return capabilities?.[0] === 0x7b ? capabilities : Buffer.from('{}');
}

const noCommonVersion = (server: string, what: string) =>
  new HostError('protocol_error', `server '${server}' ${what}`, {
    server,
    reason: 'no_common_version',
    hint: `Hostler speaks ${[MODERN_VERSION, ...LEGACY_VERSIONS].join(', ')}`,
  });
