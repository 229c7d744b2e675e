/**
 * Reading the few answers Hostler itself must understand. Everything else is relayed unread.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { memberBytes, memberString, memberText } from '../wire/json-members.js';
import type { Answer } from '../wire/peer-interface.js';

export interface RpcError {
  readonly code: number;
  /** As the server wrote it: neither redacted nor bounded. */
  readonly message: string;
  readonly data: Buffer | undefined;
}

/**
 * The error object with which a server answered, as it wrote it: the cause of the HostError, for whoever relays it. Neither
 * redacted nor bounded, so never for a log.
 */
export class RpcRefusal extends Error {
  override readonly name = 'RpcRefusal';
  readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    super('the server answered with an error');
    this.bytes = bytes;
  }
}

/** Reads an error object that may be anything at all. */
export function readRpcError(bytes: Buffer): RpcError {
  const code = Number(memberText(bytes, 'code'));
  return {
    code: Number.isInteger(code) ? code : 0,
    message: memberString(bytes, 'message') ?? 'no message',
    data: memberBytes(bytes, 'data'),
  };
}

/** The result, or a thrown HostError that keeps the server's own code. */
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

/** What a server said, on one line, without secrets, and short. Redacted before it is cut, or half a secret would show. */
export const quote = (text: string, clean: (text: string) => string): string =>
  neutraliseLine(clean(text), LIMITS.quotedChars);

/** A member that we ourselves act on; undefined when absent. The bytes came through the scanner, so they are JSON. */
export function parseMember(bytes: Buffer, key: string): unknown {
  const text = memberText(bytes, key);
  return text === undefined ? undefined : JSON.parse(text);
}
