/**
 * Reads the metadata in `_meta` of a modern request (version and capabilities of the client) and checks the headers that repeat it.
 * Invariants: a duplicate member counts as absent. Errors quote only the version of the client, up to `versionCharsMax`.
 */
import { BytesMemo } from '../../../kernel/bytes-memo.js';
import { LIMITS } from '../../../kernel/limits.js';
import { isSameNumber } from '../../../policy/canonical-json.js';
import { ALL_VERSIONS } from '../../../session/eras/eras.js';
import { META, MODERN_ERRORS, MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import { decodeHeaderValue } from '../../../wire/header-value.js';
import { type AtPath, isObject, memberBytes, membersBytes, stringOf, valuesAt } from '../../../wire/json-members.js';
import { METHODS, RPC } from '../../../wire/methods.js';
import { capabilitiesBytesMax, DeclaredCapabilities } from '../../bridge/client-capabilities.js';
import {
  type ClientCapabilities,
  isFailure,
  type MirroredHeader,
  type Router,
  type RpcFailure,
} from '../../exchange.js';
import type { Caller } from '../../http/ingress-context.js';
import type { RequestHeaders } from '../../http/reply.js';
import { isLogLevel, LOG_LEVEL, logLevels } from '../../listening/log-levels.js';

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

const unsupportedVersion = (version: string): RpcFailure => ({
  code: MODERN_ERRORS.unsupportedVersion,
  message: 'this protocol version is not supported; use one of data.supported',
  data: JSON.stringify({ supported: ALL_VERSIONS, requested: version.slice(0, versionCharsMax) }),
  httpStatus: 400,
});

export const missing = (key: string): RpcFailure =>
  invalid(`params._meta must have exactly one ${key}; every request of protocol ${MODERN_VERSION} carries it`);

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

export type ModernCheck =
  | { readonly ok: true; readonly capabilities: ClientCapabilities }
  | { readonly ok: false; readonly failure: RpcFailure };

/**
 * Compares the headers of a modern request with the members of its body that they repeat.
 * Invariant: a message passes only if a reader of its headers and a reader of its body see the same request.
 */
export function checkModernRequest(
  method: string,
  params: Buffer | undefined,
  { endpoint, principal, headers }: Caller,
  router: Pick<Router, 'mirroredArguments'>,
): ModernCheck {
  const field = METHODS.get(method)?.nameMember;
  const [meta, name, args] = isObject(params) ? membersBytes(params, keysWith(field)) : [];
  const envelope = readEnvelope(meta);
  if (isFailure(envelope)) return wrong(envelope);
  const { version, capabilities } = envelope;
  if (headers['mcp-protocol-version'] !== version)
    return wrong(mismatch('MCP-Protocol-Version', headers['mcp-protocol-version']));
  if (version !== MODERN_VERSION) return wrong(unsupportedVersion(version));
  // A method is plain ASCII, so its header is not encoded. The headers of names and arguments may be.
  if (headers['mcp-method'] !== method) return wrong(mismatch('Mcp-Method', headers['mcp-method']));
  if (field !== undefined) {
    const subject = name && stringOf(name);
    if (decoded(headers['mcp-name']) !== subject) return wrong(mismatch('Mcp-Name', headers['mcp-name']));
    if (method === 'tools/call' && subject !== undefined) {
      const mirrored = router.mirroredArguments(endpoint, principal, subject);
      const failure = mirrored && firstMismatch(mirrored, args, headers);
      if (failure) return wrong(failure);
    }
  }
  return { ok: true, capabilities };
}

const metaAlone = ['_meta'];
/** Created once per field, not per request. */
const keysByField = new Map(['name', 'uri', 'taskId'].map((field) => [field, ['_meta', field, 'arguments']]));
const keysWith = (field: string | undefined): readonly string[] =>
  field === undefined ? metaAlone : (keysByField.get(field) ?? ['_meta', field, 'arguments']);

/** A notification needs no metadata, but metadata that it has must agree with the headers. */
export function checkModernNotification(
  method: string,
  params: Buffer | undefined,
  headers: RequestHeaders,
): RpcFailure | undefined {
  if (headers['mcp-method'] !== undefined && headers['mcp-method'] !== method)
    return mismatch('Mcp-Method', headers['mcp-method']);
  const meta = isObject(params) ? memberBytes(params, '_meta') : undefined;
  const value = isObject(meta) ? memberBytes(meta, META.version) : undefined;
  const version = value === undefined ? headers['mcp-protocol-version'] : stringOf(value);
  if (version !== headers['mcp-protocol-version'])
    return mismatch('MCP-Protocol-Version', headers['mcp-protocol-version']);
  return version === MODERN_VERSION ? undefined : unsupportedVersion(version ?? '');
}

const decoded = (value: string | undefined): string | undefined =>
  value === undefined ? undefined : decodeHeaderValue(value);

const paramName = ({ name }: MirroredHeader): string => `mcp-param-${name.toLowerCase()}`;

function firstMismatch(
  mirrored: readonly MirroredHeader[],
  args: Buffer | undefined,
  headers: RequestHeaders,
): RpcFailure | undefined {
  const values = valuesAt(
    args,
    mirrored.map(({ path }) => path),
  );
  for (const [i, header] of mirrored.entries()) {
    const at = values[i] as AtPath;
    const raw = headers[paramName(header)];
    if (at === 'unclear') return unclear(header);
    if (!isMirrored(raw, at)) return mismatch(`Mcp-Param-${header.name}`, raw);
  }
  return undefined;
}

/** An absent or null argument must have no header. Any other argument must equal its header. */
function isMirrored(raw: string | undefined, at: Exclude<AtPath, 'unclear'>): boolean {
  if (at === 'absent' || at.equals(nullText)) return raw === undefined;
  if (raw === undefined) return false;
  const value = decodeHeaderValue(raw);
  if (value === undefined) return false;
  const text = stringOf(at);
  if (text !== undefined) return text === value;
  const written = at.toString('latin1');
  return written === value || isSameNumber(written, value);
}

const nullText = Buffer.from('null');

/** No header value could match an ambiguous argument. */
const unclear = ({ name }: MirroredHeader): RpcFailure => ({
  code: MODERN_ERRORS.headerMismatch,
  message: `the argument for the header Mcp-Param-${name} is given twice, or in an object with more than ${LIMITS.members} members; send each argument once`,
  httpStatus: 400,
});

const wrong = (failure: RpcFailure): ModernCheck => ({ ok: false, failure });

/** The values are not quoted: a header may contain a secret. */
const mismatch = (header: string, value: string | undefined): RpcFailure => ({
  code: MODERN_ERRORS.headerMismatch,
  message: `the header ${header} ${value === undefined ? 'is missing' : 'differs from the body'}; send the value of the body`,
  httpStatus: 400,
});
