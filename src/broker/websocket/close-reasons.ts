/**
 * Why a side closes a WebSocket: the code of the close frame, and the error that a worker makes of it.
 * Not here: answers before there is a WebSocket (listen.ts, connect.ts).
 */
import { HostError, notExecuted } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

export const closeCodes = {
  closed: 1000,
  /** The host stops. It has answered everything that it read, and reads nothing more. Not code 1001: a proxy may close with that. */
  going_away: 4007,
  /** The host stops, and has read calls that it did not answer. */
  stopped: 1011,
  bad_frame: 4000,
  /** The key was revoked, or has expired. */
  revoked: 4002,
  /** The same session opened another connection. */
  replaced: 4003,
  slow_consumer: 4005,
  silent: 4006,
} as const;

export type CloseReason = keyof typeof closeCodes;

const reasons = new Map<number, string>(Object.entries(closeCodes).map(([reason, code]) => [code, reason]));

/** The code was sent by another program, such as a proxy: `closed_1001`. */
export const closeReasonOf = (code: number): string => reasons.get(code) ?? `closed_${code}`;

/** The text of a close frame has at most 123 bytes. */
export const closeText = (detail: string): string => {
  const text = detail.replace(/[^\x20-\x7e]/g, '?');
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
};

export function closeError(reason: string, text: string): HostError {
  const detail = text === '' ? '' : `: ${neutraliseLine(text, LIMITS.quotedChars)}`;
  switch (reason) {
    case 'revoked':
      return refusedKey('the key of this worker was revoked or has expired', reason);
    case 'bad_frame': {
      const hint = 'run compatible versions of Hostler on both sides';
      return new HostError('protocol_error', `the broker could not read a message of this worker${detail}`, {
        reason,
        hint,
      });
    }
    default:
      return new HostError('transport', 'the connection to the broker was lost', {
        reason,
        hint: 'the worker connects again by itself',
      });
  }
}

export function refusedKey(message: string, reason: string): HostError {
  const hint = 'make a key with hostler key add on the host, and give its file to this worker';
  return notExecuted('unauthenticated', message, hint, { reason });
}
