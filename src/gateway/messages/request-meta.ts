/**
 * Splits `_meta` of a client's request into members for the gateway and members for the server.
 * Invariant: protocol members of the client's hop never reach the server.
 */
import { BytesMemo } from '../../kernel/bytes-memo.js';
import { META } from '../../session/eras/modern/protocol.js';
import { memberString, stringOf } from '../../wire/json-members.js';
import { eachMember, readString } from '../../wire/json-scan.js';

/** The log levels of the protocol. Not here: the level of each client (listening/log-levels.ts). */

/** The levels of RFC 5424, lowest first. */
export const logLevels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const;
export type LogLevel = (typeof logLevels)[number];

export const isLogLevel = (text: string | undefined): text is LogLevel =>
  (logLevels as readonly (string | undefined)[]).includes(text);

/** Undefined `level`: the client gets all logs. A log without a valid level is dropped for any other client. */
export function isLogged(level: LogLevel | undefined, params: Buffer | undefined): boolean {
  if (level === undefined) return true;
  const own = params && memberString(params, 'level');
  return isLogLevel(own) && !isMoreVerbose(own, level);
}

export const isMoreVerbose = (level: LogLevel, than: LogLevel): boolean =>
  logLevels.indexOf(level) < logLevels.indexOf(than);

export const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';
export const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';

export interface RequestMeta {
  /** JSON text of the token as sent, quotes included. */
  readonly progressToken: string | undefined;
  readonly logLevel: LogLevel | undefined;
  /** JSON text of all other members, without braces. */
  readonly forwarded: string | undefined;
}

export const noMeta: RequestMeta = { progressToken: undefined, logLevel: undefined, forwarded: undefined };
const ownKeys = new Set<string>([...Object.values(META), LOG_LEVEL, SUBSCRIPTION_ID, 'progressToken']);

/** The protocol defines a handful of members, and clients add few. */
const membersMax = 64;

/** Undefined: `meta` is not an object, has a duplicate key, or has too many members. */
export function readMeta(meta: Buffer | undefined): RequestMeta | undefined {
  return meta ? (metas.of(meta, metaOf, isReusable) ?? undefined) : noMeta;
}

const metas = new BytesMemo<RequestMeta | null>();
/** Metadata with a progress token is not cached, because a token belongs to one request. */
const isReusable = (meta: RequestMeta | null): boolean => meta !== null && meta.progressToken === undefined;

function metaOf(meta: Buffer): RequestMeta | null {
  let progressToken: string | undefined;
  let logLevel: LogLevel | undefined;
  let forwarded = '';
  // An array, because most requests have two or three members: a Set would cost more.
  const seen: string[] = [];
  const after = eachMember(meta, 0, meta.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    const key = readString(meta, keyStart, keyEnd);
    if (seen.length >= membersMax || seen.includes(key)) return false;
    seen.push(key);
    if (!ownKeys.has(key)) {
      forwarded += `${forwarded === '' ? '' : ','}${meta.toString('utf8', keyStart - 1, valueEnd)}`;
    } else if (key === 'progressToken') {
      if (isToken(meta[valueStart] as number)) progressToken = meta.toString('utf8', valueStart, valueEnd);
    } else if (key === LOG_LEVEL) {
      const level = stringOf(meta.subarray(valueStart, valueEnd));
      if (isLogLevel(level)) logLevel = level;
    }
    return undefined;
  });
  if (after !== meta.length) return null;
  return { progressToken, logLevel, forwarded: forwarded === '' ? undefined : forwarded };
}

/** The first byte of a string or a number. */
const isToken = (first: number): boolean => first === 0x22 || first === 0x2d || (first >= 0x30 && first <= 0x39);
