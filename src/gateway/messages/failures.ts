/**
 * Converts errors for clients. An invalid request and an error of the server become JSON-RPC errors.
 * Any other failure of a tool call becomes a tool result: one sentence for the model, and facts in `_meta`.
 * Not here: results (eras/).
 * Invariant: clients never see the `cause` of an error, unless it is an error object of the server.
 */
import { ERRORS, type ErrorCode, HostError } from '../../kernel/errors.js';
import { MODERN_ERRORS } from '../../session/eras/modern/protocol.js';
import { RpcRefusal, readRpcError } from '../../session/rpc-response.js';
import type { Era } from '../../wire/channel.js';
import { RPC } from '../../wire/methods.js';
import { eraOf } from '../eras/eras.js';
import type { RpcFailure } from '../exchange.js';

const ERROR_META = 'hostler/error';

/** Codes of an invalid or cancelled request: never a tool result. */
const ownErrors: ReadonlySet<ErrorCode> = new Set([
  'invalid_arguments',
  'invalid_request',
  'tool_not_found',
  'unauthenticated',
  'cancelled',
]);

export interface FailureContext {
  readonly method: string;
  readonly clientEra: string;
  readonly server: string;
  readonly serverEra: Era;
  readonly tool?: string | undefined;
  /** One JSON object. */
  readonly serverInfo: string;
}

export type CallFailure = { readonly result: string } | { readonly failure: RpcFailure };

export function callFailure(error: unknown, context: FailureContext): CallFailure {
  if (!(error instanceof HostError) || ownErrors.has(error.code) || error.details.rpcCode !== undefined) {
    return { failure: requestFailure(error, context) };
  }
  const facts = `"${ERROR_META}":${factsOf(error, context)}`;
  return { result: eraOf(context.clientEra).toolError(sentence(error), facts, context.serverInfo) };
}

export function requestFailure(error: unknown, context: FailureContext): RpcFailure {
  // A defect of Hostler: its text is for the operator only.
  if (!(error instanceof HostError)) return { code: RPC.internalError, message: 'internal error' };
  const answered = answerOf(error);
  if (answered) return translateError(answered, context);
  const { rpcCode } = error.details;
  if (rpcCode !== undefined) return { code: codeFor(rpcCode, context), message: withoutOwnPrefix(error, context) };
  return { code: ERRORS[error.code].rpc, message: sentence(error), data: factsOf(error, context) };
}

/** For a request that was not sent to a server. */
export const ownFailure = (error: HostError): RpcFailure => ({
  code: ERRORS[error.code].rpc,
  message: error.message,
  data: JSON.stringify(error),
});

/** Message and data of the server's error object stay unchanged. */
export function translateError(bytes: Buffer, context: FailureContext): RpcFailure {
  const { code, message, data } = readRpcError(bytes);
  return { code: codeFor(code, context), message, ...(data === undefined ? {} : { data }) };
}

function codeFor(code: number, { method, clientEra, serverEra }: FailureContext): number {
  if (code === 0) return RPC.internalError;
  // These codes are about metadata that the gateway writes: the client cannot correct it.
  if (code === MODERN_ERRORS.headerMismatch || code === MODERN_ERRORS.unsupportedVersion) return RPC.internalError;
  return eraOf(clientEra).translateCode(code, serverEra, method);
}

export const unknownUri = (uri: string, era: string): RpcFailure => ({
  code: eraOf(era).resourceNotFoundCode,
  message: 'resource not found',
  data: JSON.stringify({ uri }),
});

const ambiguousNamesMax = 8;

/** Several servers have the resource or a matching template. `servers` contains only servers that the client can see. */
export function ambiguousUri(uri: string, servers: readonly string[]): RpcFailure {
  const named = servers.slice(0, ambiguousNamesMax).map((server) => `'${server}'`);
  const more = servers.length > named.length ? ` and ${servers.length - named.length} more` : '';
  const hint = `use the endpoint /mcp/<server>, or hostler://<server>/<uri>`;
  return {
    code: RPC.invalidParams,
    message: `the resource URI is ambiguous: it belongs to the servers ${named.join(' and ')}${more}; ${hint}`,
    data: JSON.stringify({ uri, reason: 'ambiguous_uri', servers: servers.slice(0, ambiguousNamesMax), hint }),
  };
}

const answerOf = ({ cause }: HostError): Buffer | undefined => (cause instanceof RpcRefusal ? cause.bytes : undefined);

function withoutOwnPrefix({ message }: HostError, { server, tool }: FailureContext): string {
  const start = `${server}/${tool ?? ''}: `;
  return message.startsWith(start) ? message.slice(start.length) : message;
}

function sentence({ message, hint, details }: HostError): string {
  const { retryAfterMs } = details;
  const wait = retryAfterMs === undefined ? '' : `; try again in ${Math.max(1, Math.ceil(retryAfterMs / 1000))} s`;
  return `${message}${hint === undefined ? '' : `; ${hint}`}${wait}.`;
}

function factsOf(error: HostError, { server, tool }: FailureContext): string {
  const { code, retryable } = error;
  const { retryAfterMs, requestId } = error.details;
  // With the reason a client can distinguish its own full queue from a rate limit of the server.
  const reason = code === 'overloaded' ? error.details.reason : undefined;
  return JSON.stringify({ code, retryable, reason, retryAfterMs, server, tool, requestId });
}
