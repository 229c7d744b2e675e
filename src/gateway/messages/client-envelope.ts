/**
 * What a client says of itself, found in the bytes of its params: in the `_meta` of each request (modern), or once, in
 * `initialize` (legacy). Pure: the same bytes are the same answer, and what is wrong with them is a value.
 * Not here: where the bytes come from (http/, stdio/), what the capabilities are good for (bridge/).
 *
 * Invariants: a member that stands twice is nobody's, as in wire/json-members.ts; nothing a client wrote is quoted back
 * but the version it asked for, cut short.
 */
import { isLegacyVersion, META, MODERN_ERRORS, MODERN_VERSION, NEWEST_LEGACY_VERSION } from '../../session/versions.js';
import { memberBytes, memberString, membersBytes, stringOf } from '../../wire/json-members.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { ClientCapabilities, RpcFailure } from '../exchange.js';

/** Capabilities and client info are handed on to servers with every request. */
const capabilitiesBytesMax = 64 * 1024;
const clientInfoBytesMax = 64 * 1024;
const shownChars = 64;
const logLevelKey = 'io.modelcontextprotocol/logLevel';

/** The eight of RFC 5424, as the protocol names them. */
const logLevels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const;
export type LogLevel = (typeof logLevels)[number];

export interface ModernEnvelope {
  readonly version: string;
  readonly capabilities: ClientCapabilities;
  /** One JSON object, as the client wrote it; it should be there and need not. */
  readonly clientInfo: Buffer | undefined;
  /** Undefined: the client wants no logs. */
  readonly logLevel: LogLevel | undefined;
}

export interface Initialize {
  /** The one to speak: what was asked for if we know it, else our newest. */
  readonly version: string;
  readonly capabilities: ClientCapabilities;
}

export const isFailure = <T extends object>(read: T | RpcFailure): read is RpcFailure => 'code' in read;

/**
 * The envelope of a request that says it is of the modern era, or why it cannot be served; undefined when it does not say so.
 * One that says so and is wrong is a wrong modern request, not a legacy one.
 */
export function modernEnvelope(params: Buffer | undefined): ModernEnvelope | RpcFailure | undefined {
  const meta = metaOf(params);
  // Nearly no legacy request gets past this line.
  if (!meta) return undefined;
  const [versionText, raw, clientInfo, level] = membersBytes(meta, envelopeKeys);
  if (versionText === undefined && raw === undefined) return undefined;
  const version = versionText && stringOf(versionText);
  if (version === undefined) return missing(META.version);
  if (raw === undefined) return missing(META.clientCapabilities);
  const capabilities = parseCapabilities(raw);
  if (!capabilities) return invalid(`params._meta["${META.clientCapabilities}"] must be an object of at most 64 KiB`);
  if (clientInfo && (!isObject(clientInfo) || clientInfo.length > clientInfoBytesMax))
    return invalid(`params._meta["${META.clientInfo}"] must be an object of at most 64 KiB`);
  const logLevel = level && logLevelOf(level);
  if (level && !logLevel) return invalid(`params._meta["${logLevelKey}"] must be one of ${logLevels.join(', ')}`);
  if (version !== MODERN_VERSION) return unsupportedVersion(version);
  return { version, capabilities, clientInfo, logLevel };
}

/** As above, of a request that cannot be anything but modern. */
export const readModernEnvelope = (params: Buffer | undefined): ModernEnvelope | RpcFailure =>
  modernEnvelope(params) ?? missing(META.version);

/** What a legacy client asks for in `initialize`, or why it cannot have it. */
export function readInitialize(params: Buffer | undefined): Initialize | RpcFailure {
  if (!params || !isObject(params)) return invalid('params must be an object');
  const asked = memberString(params, 'protocolVersion');
  if (asked === undefined) return invalid('params.protocolVersion must be a string');
  const capabilities = parseCapabilities(memberBytes(params, 'capabilities') ?? noCapabilities.raw);
  if (!capabilities) return invalid('params.capabilities must be an object of at most 64 KiB');
  return { version: isLegacyVersion(asked) ? asked : NEWEST_LEGACY_VERSION, capabilities };
}

/** Undefined when it is no object, or too large. The bytes are copied: they live as long as the session they belong to. */
export function parseCapabilities(bytes: Buffer): ClientCapabilities | undefined {
  if (!isObject(bytes) || bytes.length > capabilitiesBytesMax) return undefined;
  if (bytes.length === noCapabilities.raw.length) return noCapabilities;
  const [elicitation, sampling, roots] = membersBytes(bytes, ['elicitation', 'sampling', 'roots']);
  const [form, url] = isObject(elicitation) ? membersBytes(elicitation, ['form', 'url']) : [];
  return {
    raw: Buffer.from(bytes),
    // Naming neither way means by form: the only one there was when it was first declared.
    elicitation: isObject(elicitation) && (isObject(form) || !isObject(url)),
    elicitationUrl: isObject(url),
    sampling: isObject(sampling),
    roots: isObject(roots),
  };
}

export function unsupportedVersion(version: string): RpcFailure {
  const requested = version.slice(0, shownChars);
  return {
    code: MODERN_ERRORS.unsupportedVersion,
    message: 'unsupported protocol version',
    data: JSON.stringify({ supported: [MODERN_VERSION], requested }),
    httpStatus: 400,
  };
}

const envelopeKeys = [META.version, META.clientCapabilities, META.clientInfo, logLevelKey];
/** `{}`, as many clients write: the only object of two bytes. */
const noCapabilities: ClientCapabilities = Object.freeze({
  raw: Buffer.from('{}'),
  elicitation: false,
  elicitationUrl: false,
  sampling: false,
  roots: false,
});

const isObject = (value: Buffer | undefined): value is Buffer => value !== undefined && value[0] === 0x7b;

function metaOf(params: Buffer | undefined): Buffer | undefined {
  const meta = params && memberBytes(params, '_meta');
  return isObject(meta) ? meta : undefined;
}

function logLevelOf(level: Buffer): LogLevel | undefined {
  const text = stringOf(level);
  return logLevels.find((known) => known === text);
}

const invalid = (message: string): RpcFailure => ({ code: RPC.invalidParams, message, httpStatus: 400 });
const missing = (key: string): RpcFailure => invalid(`params._meta["${key}"] is missing or not of its type`);
