/**
 * Tells a peer that does not speak MCP from one that is only in trouble, by what it said to the first questions. Text is
 * never looked at.
 * A page instead of JSON, a refusal of the words of both eras, or an answer to `initialize` that knows no such method: trying
 * again at once cannot change these. A 5xx, a broken connection or a silence says nothing of the kind.
 * Not here: what becomes of such a server (supervisor/).
 */
import { HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';
import { RPC } from '../wire/rpc-codes.js';
import { refusesWords } from './negotiate.js';

/** Codes that find fault with the question. Others are the server's own trouble, such as a database that is not up yet. */
const refusesQuestion: ReadonlySet<number | undefined> = new Set([
  RPC.parseError,
  RPC.invalidRequest,
  RPC.methodNotFound,
  RPC.invalidParams,
]);

/** The error a failed start is told as, whatever it was. */
export function judgeStart(error: unknown, server: string): unknown {
  if (!isHostError(error) || !isNotMcp(error)) return error;
  const { httpStatus, rpcCode } = error.details;
  const facts: HostErrorOptions = {
    server,
    reason: 'not_mcp',
    execution: 'not_executed',
    hint: `check that the command or URL of server '${server}' is that of an MCP server`,
    cause: error,
    ...(httpStatus === undefined ? {} : { httpStatus }),
    ...(rpcCode === undefined ? {} : { rpcCode }),
  };
  return new HostError('protocol_error', `${error.message}: it does not speak MCP`, facts);
}

function isNotMcp({ code, details: { reason, httpStatus, rpcCode } }: HostError): boolean {
  if (code !== 'protocol_error') return false;
  if (reason === 'content_type') return true;
  if (reason === 'http_status') return refusesWords(httpStatus);
  return reason === 'rpc_error' && refusesQuestion.has(rpcCode);
}
