/**
 * Reading the few answers Hostler itself must understand. Everything else is relayed unread.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { memberBytes, memberString, memberText } from '../wire/json-members.js';
import type { Answer } from '../wire/peer.js';

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data: Buffer | undefined;
}

/** Reads an error object that may be anything at all. */
export function readRpcError(bytes: Buffer): RpcError {
  const code = Number(memberText(bytes, 'code'));
  return {
    code: Number.isInteger(code) ? code : 0,
    message: neutraliseLine(memberString(bytes, 'message') ?? 'no message', LIMITS.quotedChars),
    data: memberBytes(bytes, 'data'),
  };
}

/** The result, or a thrown HostError that keeps the server's own code. */
export function resultOf(answer: Answer, server: string, method: string, clean: (text: string) => string): Buffer {
  if (answer.kind === 'result') return answer.bytes;
  const { code, message } = readRpcError(answer.bytes);
  throw new HostError('protocol_error', `server '${server}' answered ${method} with error ${code}: ${clean(message)}`, {
    server,
    rpcCode: code,
    reason: 'rpc_error',
  });
}

/** JSON of a member that we ourselves act on; undefined when absent or not JSON. */
export function parseMember(bytes: Buffer, key: string): unknown {
  const text = memberText(bytes, key);
  return text === undefined ? undefined : JSON.parse(text);
}
