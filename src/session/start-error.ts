/**
 * The error of a failed start, in terms of the server's configuration. No text of the server is compared.
 * The first responses reveal a peer that does not speak MCP: a page instead of JSON, a refusal of every era, or an error that
 * blames the request. A retry cannot change these. A 5xx, a broken connection or silence proves nothing.
 * Not here: the state of such a server (supervisor/).
 */
import { HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';
import type { Peer } from '../wire/peer.js';
import { RPC } from '../wire/rpc-codes.js';
import { refusesProtocol } from './rpc-response.js';

const endsChannel: ReadonlySet<unknown> = new Set(['exit', 'stdin_closed', 'stdout_closed']);

/**
 * A start that exceeds its time limit is reported as `start_timeout`, not as a timeout of the request that was open. The error
 * of the channel has the exit code and stderr, so it replaces the error of one request.
 */
export function startError(error: unknown, peer: Peer | undefined, server: string, startTimeoutMs: number): unknown {
  if (!isHostError(error)) return error;
  // On a busy machine the broken pipe of an exiting server is seen before its exit.
  if (endsChannel.has(error.details.reason)) return peer?.closedBy ?? error;
  if (error.code !== 'timeout') return error;
  return new HostError('timeout', `server '${server}' did not become ready within ${startTimeoutMs} ms`, {
    server,
    reason: 'start_timeout',
    limit: startTimeoutMs,
    execution: 'not_executed',
    hint: 'look at its stderr; if it is only slow, raise timeouts.start',
    cause: error,
  });
}

/** Codes that blame the request. Other codes are problems of the server, such as a database that is not up yet. */
const requestFaults: ReadonlySet<number | undefined> = new Set([
  RPC.parseError,
  RPC.invalidRequest,
  RPC.methodNotFound,
  RPC.invalidParams,
]);

/** Returns a `not_mcp` error for a peer that does not speak MCP, and any other error unchanged. */
export function notMcpError(error: unknown, server: string): unknown {
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
  if (reason === 'http_status') return refusesProtocol(httpStatus);
  return reason === 'rpc_error' && requestFaults.has(rpcCode);
}
