/**
 * Failed requests as clients see them. A wrong request, and an error of the server, is a JSON-RPC error. Any other failure of a tool
 * call is a tool result: one sentence that a model can act on, and facts in `_meta`.
 * Not here: results (eras/).
 * Invariant: the `cause` of an error is never shown.
 */
import { ERRORS, type ErrorCode, HostError } from '../../kernel/errors.js';
import { MODERN_ERRORS } from '../../session/eras/modern/protocol.js';
import { RpcRefusal, readRpcError } from '../../session/rpc-response.js';
import type { Era } from '../../wire/channel.js';
import { RPC } from '../../wire/rpc-codes.js';
import { eraOf } from '../eras/eras.js';
import type { RpcFailure } from '../exchange.js';

const ERROR_META = 'hostler/error';

/** The request itself is wrong, or was cancelled. */
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
  /** The info of the server: one JSON object. */
  readonly serverInfo: string;
}

export type CallFailure = { readonly result: string } | { readonly failure: RpcFailure };

/** For a tool call: a tool result, unless the request itself is wrong. */
export function callFailure(error: unknown, context: FailureContext): CallFailure {
  if (!(error instanceof HostError) || ownErrors.has(error.code) || error.details.rpcCode !== undefined) {
    return { failure: requestFailure(error, context) };
  }
  const facts = `"${ERROR_META}":${factsOf(error, context)}`;
  return { result: eraOf(context.clientEra).toolError(sentence(error), facts, context.serverInfo) };
}

/** For any other request. */
export function requestFailure(error: unknown, context: FailureContext): RpcFailure {
  // An error of our own: its text is for the operator.
  if (!(error instanceof HostError)) return { code: RPC.internalError, message: 'internal error' };
  const answered = answerOf(error);
  if (answered) return translateError(answered, context);
  const { rpcCode } = error.details;
  if (rpcCode !== undefined) return { code: codeFor(rpcCode, context), message: withoutOwnPrefix(error, context) };
  return { code: ERRORS[error.code].rpc, message: sentence(error), data: factsOf(error, context) };
}

/** For a request that reached no server. */
export const ownFailure = (error: HostError): RpcFailure => ({
  code: ERRORS[error.code].rpc,
  message: error.message,
  data: JSON.stringify(error),
});

/** For an error object of a server: its own message and data. */
export function translateError(bytes: Buffer, context: FailureContext): RpcFailure {
  const { code, message, data } = readRpcError(bytes);
  return { code: codeFor(code, context), message, ...(data === undefined ? {} : { data }) };
}

function codeFor(code: number, { method, clientEra, serverEra }: FailureContext): number {
  if (code === 0) return RPC.internalError;
  // These are about the metadata that we wrote ourselves: the client cannot mend it.
  if (code === MODERN_ERRORS.headerMismatch || code === MODERN_ERRORS.unsupportedVersion) return RPC.internalError;
  return eraOf(clientEra).translateCode(code, serverEra, method);
}

/** No server has such a resource. */
export const unknownUri = (uri: string, era: string): RpcFailure => ({
  code: eraOf(era).resourceNotFoundCode,
  message: 'resource not found',
  data: JSON.stringify({ uri }),
});

const ambiguousNamesMax = 8;

/** Several servers have the resource, or a template that it matches. They are servers that the client can see. */
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

/** The error object of the server, which is the cause of the error. */
const answerOf = ({ cause }: HostError): Buffer | undefined => (cause instanceof RpcRefusal ? cause.bytes : undefined);

/** Without the prefix `server/tool:`, which the client knows. */
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
  // A client reacts to its own full queue in another way than to a server's rate limit.
  const reason = code === 'overloaded' ? error.details.reason : undefined;
  // Members that are undefined are not written.
  return JSON.stringify({ code, retryable, reason, retryAfterMs, server, tool, requestId });
}
