/**
 * The words on the control socket: one JSON object a line. A request `{id, op, ...}` is answered by any number of
 * `{id, event}` and then one `{id, result}` or `{id, error}`. Closing the connection ends what is under way on it.
 */
import type { Socket } from 'node:net';
import { ERRORS, type ErrorCode, HostError, type HostErrorOptions, isHostError } from '../../kernel/errors.js';
import { LineFramer } from '../../wire/line-framer.js';

export const frameBytesMax = 1024 * 1024;

/** Undefined is what has no place in JSON: a result that is nothing is null. */
export const frameOf = (value: object): string => `${JSON.stringify(value)}\n`;

/** Tells each object that comes in; `broken` once, when what comes is no such thing. */
export function readFrames(
  socket: Socket,
  told: (frame: Readonly<Record<string, unknown>>) => void,
  broken: (error: HostError) => void,
): void {
  const framer = new LineFramer(
    frameBytesMax,
    (bytes, start, end) => {
      const frame = parse(bytes.toString('utf8', start, end));
      if (frame) told(frame);
      else broken(new HostError('protocol_error', 'what came on the control socket is not a JSON object'));
    },
    () =>
      broken(new HostError('protocol_error', 'a message on the control socket is too long', { limit: frameBytesMax })),
  );
  socket.on('data', (chunk) => framer.push(chunk));
}

function parse(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** A mistake of ours says nothing of itself to the outside. */
export const errorFrame = (error: unknown): Readonly<Record<string, unknown>> =>
  (isHostError(error) ? error : new HostError('protocol_error', 'the running Hostler failed to do it')).toJSON();

/** The other way round. */
export function errorFrom(frame: Readonly<Record<string, unknown>>): HostError {
  const { code, message, retryable: _retryable, ...options } = frame;
  const known = typeof code === 'string' && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'protocol_error';
  return new HostError(known, String(message), options as HostErrorOptions);
}
