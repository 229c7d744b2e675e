/**
 * Reads the metadata in `_meta` of a modern request: version and capabilities of the client.
 * Not here: headers that repeat the metadata (header-checks.ts).
 * Invariants: a duplicate member counts as absent. Errors quote only the version of the client, up to `versionCharsMax`.
 */

import { BytesMemo } from '../../../kernel/bytes-memo.js';
import { ALL_VERSIONS } from '../../../session/eras/eras.js';
import { META, MODERN_ERRORS, MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import { isObject, memberBytes, membersBytes, stringOf } from '../../../wire/json-members.js';
import { RPC } from '../../../wire/rpc-codes.js';
import { capabilitiesBytesMax, DeclaredCapabilities } from '../../bridge/client-capabilities.js';
import { type ClientCapabilities, isFailure, type RpcFailure } from '../../exchange.js';
import { isLogLevel, logLevels } from '../../messages/log-level.js';
import { LOG_LEVEL } from '../../messages/request-meta.js';

const clientInfoBytesMax = 64 * 1024;
const versionCharsMax = 64;
const envelopeKeys = [META.version, META.clientCapabilities, META.clientInfo, LOG_LEVEL];
/** Prefix of all `_meta` keys of the modern era. */
const keyPrefix = Buffer.from('io.modelcontextprotocol/');

export interface ModernEnvelope {
  readonly version: string;
  readonly capabilities: ClientCapabilities;
}

export const namesModern = (version: string | undefined): boolean => version !== undefined && version >= MODERN_VERSION;

export const claimsModern = (params: Buffer | undefined): boolean => claimOf(params) !== undefined;

/** Undefined: the request has no modern metadata. */
export function modernEnvelope(params: Buffer | undefined): ModernEnvelope | RpcFailure | undefined {
  const claim = claimOf(params);
  if (!claim) return undefined;
  const envelope = readEnvelope(claim);
  return isFailure(envelope) || envelope.version === MODERN_VERSION ? envelope : unsupportedVersion(envelope.version);
}

/** Accepts any version. */
export const readEnvelope = (meta: Buffer | undefined): ModernEnvelope | RpcFailure =>
  meta === undefined ? missing(META.version) : envelopes.of(meta, envelopeOf, isNotFailure);

/** This cache helps because a client repeats the same metadata with every request, except for progress tokens. */
const envelopes = new BytesMemo<ModernEnvelope | RpcFailure>();
const isNotFailure = (envelope: ModernEnvelope | RpcFailure): boolean => !isFailure(envelope);

function envelopeOf(meta: Buffer): ModernEnvelope | RpcFailure {
  const [versionBytes, capabilities, clientInfo, level] = isObject(meta) ? membersBytes(meta, envelopeKeys) : [];
  const version = versionBytes && stringOf(versionBytes);
  if (version === undefined) return missing(META.version);
  if (!isObject(capabilities)) return missing(META.clientCapabilities);
  if (capabilities.length > capabilitiesBytesMax) return tooLarge(META.clientCapabilities);
  if (clientInfo && (!isObject(clientInfo) || clientInfo.length > clientInfoBytesMax)) return tooLarge(META.clientInfo);
  if (level && !isLogLevel(stringOf(level)))
    return invalid(`params._meta["${LOG_LEVEL}"] must be one of ${logLevels.join(', ')}`);
  return { version, capabilities: new DeclaredCapabilities(capabilities) };
}

export const unsupportedVersion = (version: string): RpcFailure => ({
  code: MODERN_ERRORS.unsupportedVersion,
  message: 'this protocol version is not supported; use one of data.supported',
  data: JSON.stringify({ supported: ALL_VERSIONS, requested: version.slice(0, versionCharsMax) }),
  httpStatus: 400,
});

export const missing = (key: string): RpcFailure =>
  invalid(`params._meta must hold ${key}, once; every request of protocol ${MODERN_VERSION} carries it`);

/** Returns `_meta` if it contains a version or capabilities. */
function claimOf(params: Buffer | undefined): Buffer | undefined {
  const meta = params && memberBytes(params, '_meta');
  if (!isObject(meta)) return undefined;
  // Legacy requests rarely have such a key, and a byte search costs less than a scan. A backslash may hide a key.
  if (!meta.includes(keyPrefix) && !meta.includes('\\')) return undefined;
  const [version, capabilities] = membersBytes(meta, envelopeKeys);
  return version || capabilities ? meta : undefined;
}

const invalid = (message: string): RpcFailure => ({ code: RPC.invalidParams, message, httpStatus: 400 });
const tooLarge = (key: string): RpcFailure => invalid(`params._meta["${key}"] must be an object of at most 64 KiB`);
