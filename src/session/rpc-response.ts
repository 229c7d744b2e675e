/** Reads the few responses of a server that Hostler itself must understand. All others are relayed unread. */
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { refusesProtocol } from '../transports/http/http-errors.js';
import { memberBytes, memberString, memberText } from '../wire/json-members.js';
import { RPC } from '../wire/methods.js';
import type { Answer } from '../wire/peer-interface.js';

interface RpcError {
  readonly code: number;
  /** Message as the server wrote it: neither redacted nor bounded. */
  readonly message: string;
  readonly data: Buffer | undefined;
}

/**
 * The error object of a response as the server wrote it, as the cause of a HostError, so that a relay can pass it on. It is
 * neither redacted nor bounded, so it must not be logged.
 */
export class RpcRefusal extends Error {
  override readonly name = 'RpcRefusal';
  readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    super('the server answered with an error');
    this.bytes = bytes;
  }
}

/** The server may send any JSON as its error. */
export function readRpcError(bytes: Buffer): RpcError {
  const code = Number(memberText(bytes, 'code'));
  return {
    code: Number.isInteger(code) ? code : 0,
    message: memberString(bytes, 'message') ?? 'no message',
    data: memberBytes(bytes, 'data'),
  };
}

/** Returns the result, or throws a HostError with the server's own code. */
export function resultOf(answer: Answer, server: string, method: string, clean: (text: string) => string): Buffer {
  if (answer.kind === 'result') return answer.bytes;
  const { code, message } = readRpcError(answer.bytes);
  const quoted = quote(message, clean);
  throw new HostError('protocol_error', `server '${server}' answered ${method} with error ${code}: ${quoted}`, {
    server,
    rpcCode: code,
    reason: 'rpc_error',
  });
}

/** Text of a server on one line, redacted and then shortened: the other order could leave half a secret. */
export const quote = (text: string, clean: (text: string) => string): string =>
  neutraliseLine(clean(text), LIMITS.quotedChars);

/** The parsed member; undefined if absent. The scanner has checked that the bytes are JSON. */
export function parseMember(bytes: Buffer, key: string): unknown {
  const text = memberText(bytes, key);
  return text === undefined ? undefined : JSON.parse(text);
}

/** Codes that refuse the protocol of a request. -32022: the version is not supported. */
const protocolCodes: ReadonlySet<number | undefined> = new Set([RPC.invalidRequest, RPC.methodNotFound, -32022]);

/** True: the server has answered the opening request of an era, and does not speak that era. */
export function refusesEra(error: unknown): boolean {
  if (!isHostError(error)) return false;
  const { reason, httpStatus, rpcCode } = error.details;
  return reason === 'no_common_version' || protocolCodes.has(rpcCode) || refusesProtocol(httpStatus);
}
