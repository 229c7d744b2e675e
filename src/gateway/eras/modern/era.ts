/** The client era since 2026-07-28. It has no handshake and no sessions; every request carries its own metadata. */
import { ALL_VERSIONS, eraNamed } from '../../../session/eras/eras.js';
import { META, MODERN_ERRORS } from '../../../session/eras/modern/protocol.js';
import type { Era } from '../../../wire/channel.js';
import { editMembers, type MemberEdits, spliceMeta } from '../../../wire/json-edit.js';
import { memberString } from '../../../wire/json-members.js';
import { skipSpace } from '../../../wire/json-scan.js';
import { listenMethod, RPC } from '../../../wire/methods.js';
import { type Client, isFailure, type RpcFailure } from '../../exchange.js';
import { badResult, type ClientEra, type ResultContext } from '../era.js';
import { createModernBridge } from './bridge.js';
import { claimsModern, missing, modernEnvelope, namesModern } from './envelope.js';

const supportedVersions = JSON.stringify(ALL_VERSIONS);

const reservedMin = -32768;
const reservedMax = -32000;
const definedCodes: ReadonlySet<number> = new Set(Object.values(RPC));
/** The legacy code for a resource that does not exist. */
const legacyNotFound = -32002;

const mark = Buffer.from('"resultType"');
const meta = Buffer.from('"_meta"');
/** Cache hints of the modern era. Hostler overwrites those of a legacy server. */
const cacheKeys = [Buffer.from('"ttlMs"'), Buffer.from('"cacheScope"')];
/** A key may contain JSON escapes, which a byte search misses; then every member is parsed. */
const escaped = Buffer.from('\\u00');
const CLOSE_BRACE = 0x7d;
const completeEdits: MemberEdits = [['resultType', '"complete"']];
const cacheableEdits: MemberEdits = [...completeEdits, ['ttlMs', '0'], ['cacheScope', '"private"']];

type Translated = ReturnType<ClientEra['translateResult']>;

const translateResult: ClientEra['translateResult'] = (bytes, context) => {
  if (!eraNamed(context.from).typesResults) return fromLegacy(bytes, context);
  return context.isCacheable && !context.mayBePublic ? toPrivate(bytes) : [bytes];
};

function fromLegacy(bytes: Buffer, { isCacheable, serverInfo }: ResultContext): Translated {
  const isPlain = ![mark, meta, escaped, ...(isCacheable ? cacheKeys : [])].some((key) => bytes.includes(key));
  if (isPlain) {
    const hints = isCacheable ? ',"ttlMs":0,"cacheScope":"private"' : '';
    const isEmpty = bytes[skipSpace(bytes, 1, bytes.length)] === CLOSE_BRACE;
    const head = `{"resultType":"complete"${hints},"_meta":{"${META.serverInfo}":${serverInfo}}${isEmpty ? '' : ','}`;
    return [head, bytes.subarray(1)];
  }
  const edited = editMembers(bytes, isCacheable ? cacheableEdits : completeEdits);
  if (!edited) return badResult('has a duplicate resultType');
  try {
    return [spliceMeta(edited, [[META.serverInfo, serverInfo]])];
  } catch {
    // `_meta` is not an object, or occurs twice. serverInfo is for display only and may be omitted.
    return [edited];
  }
}

/** Does not change `input_required` results, which are never cached. */
function toPrivate(bytes: Buffer): Translated {
  const kind = memberString(bytes, 'resultType');
  if (kind !== undefined && kind !== 'complete') return [bytes];
  const edited = editMembers(bytes, [['cacheScope', '"private"']]);
  return edited ? [edited] : badResult('has two members called cacheScope');
}

const inBatch: RpcFailure = { code: RPC.invalidRequest, message: 'a batch must not contain modern requests' };

export const modernEra: ClientEra = {
  name: 'modern',
  ownMethods: new Set(['server/discover', listenMethod]),
  logLevelSource: 'request',
  resourceNotFoundCode: RPC.invalidParams,
  needsObjectOutput: false,
  claims: (version, params) => namesModern(version) || claimsModern(params),

  // The result must not be cached: the set of servers changes, and depends on the principal.
  handshakeResult(_client, { capabilities, serverInfo, instructions }) {
    const more = instructions === undefined ? '' : `,"instructions":${JSON.stringify(instructions)}`;
    return `{"resultType":"complete","supportedVersions":${supportedVersions},"capabilities":${capabilities}${more},"ttlMs":0,"cacheScope":"private","_meta":{"${META.serverInfo}":${serverInfo}}}`;
  },

  listMembers: (serverInfo, ttlMs, isPublic) =>
    `,"resultType":"complete","ttlMs":${ttlMs},"cacheScope":"${isPublic ? 'public' : 'private'}","_meta":{"${META.serverInfo}":${serverInfo}}`,

  toolError: (text, facts, serverInfo) =>
    `{"resultType":"complete","content":[{"type":"text","text":${JSON.stringify(text)}}],"isError":true,"_meta":{"${META.serverInfo}":${serverInfo},${facts}}}`,

  translateResult,

  /**
   * The modern era reserves -32768 to -32000 and defines few codes in this range. The others mean nothing to a modern client.
   * A code outside the range belongs to the server and does not change.
   */
  translateCode(code: number, from: Era): number {
    if (code < reservedMin || code > reservedMax || definedCodes.has(code)) return code;
    if (code === MODERN_ERRORS.missingCapability && eraNamed(from).reservesErrorCodes) return code;
    return code === legacyNotFound ? RPC.invalidParams : RPC.internalError;
  },

  createBridge: createModernBridge,
  openStdio: ({ id, principal, endpoint }) => {
    const clientOf = (params: Buffer | undefined): Client | RpcFailure => {
      const read = modernEnvelope(params) ?? missing(META.version);
      return isFailure(read) ? read : { id, principal, era: 'modern', endpoint, ...read };
    };
    return {
      hasBatches: false,
      clientOf: (_method, params, isInBatch) => (isInBatch ? inBatch : clientOf(params)),
    };
  },
  loadHttp: async () => (await import('./http.js')).createModernHttp,
};
