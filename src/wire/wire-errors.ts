/**
 * Errors of peer and channels for messages that cannot be sent, answered or read. Each has the server, the phase of the
 * request, and whether it may have run.
 */
import { type ErrorCode, HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { OutboundFrame } from './channel.js';

const mayHaveRun = 'it may have run: check its effect before sending it again';

const unsentFacts = (server: string) => ({ server, phase: 'queued', execution: 'not_executed' }) as const;

export const refused = (server: string, code: ErrorCode, message: string): HostError =>
  new HostError(code, message, unsentFacts(server));

export const tooManyPending = (server: string): HostError =>
  new HostError('overloaded', `server '${server}' has ${LIMITS.pendingRequests} unanswered requests already`, {
    ...unsentFacts(server),
    reason: 'pending_requests',
    limit: LIMITS.pendingRequests,
    hint: 'wait for calls to finish, or lower the concurrency of this server',
  });

export const tooLarge = (server: string, bytes: number): HostError =>
  new HostError(
    'invalid_arguments',
    `the message to server '${server}' has ${bytes} bytes; the limit is ${LIMITS.frameBytes}`,
    {
      ...unsentFacts(server),
      reason: 'frame_too_large',
      limit: LIMITS.frameBytes,
      actual: bytes,
      hint: 'send less in one call, for example the path of a file instead of its content',
    },
  );

export const overloaded = (server: string, waitingBytes: number): HostError =>
  new HostError(
    'overloaded',
    `server '${server}' does not read fast enough: ${waitingBytes} bytes wait to be sent to it`,
    {
      ...unsentFacts(server),
      reason: 'backpressure',
      limit: LIMITS.outboundBytes,
      actual: waitingBytes,
      hint: 'try again shortly; if this lasts, lower `concurrency` of the server, or restart the server because it may hang',
    },
  );

export const notOpen = (server: string): HostError =>
  new HostError('transport', `server '${server}': the connection is not open`, {
    ...unsentFacts(server),
    reason: 'closed',
  });

export const inboundTooLarge = (server: string, actual: number): HostError =>
  new HostError('result_too_large', `server '${server}' sent a message of more than ${LIMITS.frameBytes} bytes`, {
    server,
    reason: 'frame_too_large',
    execution: 'uncertain',
    limit: LIMITS.frameBytes,
    actual,
    hint: 'ask the tool for less at a time, or have it return a link or a file instead of its content',
  });

export const inboundTooDeep = (server: string): HostError =>
  new HostError('protocol_error', `server '${server}' sent an answer that nests deeper than ${LIMITS.depth} levels`, {
    server,
    reason: 'too_deep',
    phase: 'answered',
    execution: 'uncertain',
    limit: LIMITS.depth,
    hint: mayHaveRun,
  });

export function givenUp(
  server: string,
  frame: OutboundFrame,
  code: ErrorCode,
  why: string,
  unsent: boolean,
): HostError {
  return new HostError(code, `${frame.method} on server '${server}': ${why}${unsent ? ' before it was sent' : ''}`, {
    server,
    phase: unsent ? 'queued' : frame.phase,
    execution: unsent ? 'not_executed' : 'uncertain',
    hint: unsent ? 'it did not run and can be sent again' : mayHaveRun,
  });
}

export const cancelledByServer = (server: string, { method, phase }: OutboundFrame): HostError =>
  new HostError('cancelled', `server '${server}' cancelled ${method}`, {
    server,
    reason: 'by_server',
    phase,
    execution: 'uncertain',
  });

/**
 * The error of a request whose connection ended; without `frame`, the connection ended before the request was accepted. After an
 * oversized answer, only the answered request gets its error code; all other requests get `transport`.
 */
export function lost(server: string, error: HostError, frame?: OutboundFrame): HostError {
  const phase = frame?.phase ?? 'queued';
  const isBystander = error.code === 'result_too_large';
  return new HostError(
    isBystander ? 'transport' : error.code,
    isBystander ? `${error.message}, which ended the connection` : error.message,
    {
      ...error.details,
      server,
      phase,
      execution: phase === 'queued' ? 'not_executed' : 'uncertain',
      hint:
        (isBystander ? undefined : error.hint) ??
        (phase === 'queued' ? 'it did not run and can be sent again' : mayHaveRun),
      cause: error,
    },
  );
}
