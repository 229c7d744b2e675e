/** Checks, before a call is sent, what a caller in plain JavaScript can get wrong. */
import { hash } from 'node:crypto';
import { isCancelSignal } from '../../kernel/cancel-signal.js';
import { type HostError, notExecuted } from '../../kernel/errors.js';
import type { ToolArguments } from '../../session/session.js';
import { checkObject, toBuffer } from '../../wire/json-edit.js';
import { brokerLimits, idPattern } from '../protocol/limits.js';
import { type CallTarget, tooLargeCall } from './call-errors.js';

const idempotencyKeyCharsMax = 4_096;
/** Bound of the arguments of a call. The rest of a message is for the envelope. */
const argumentBytesMax = brokerLimits.messageBytes - 64 * 1024;

interface CheckedOptions {
  readonly deadlineMs?: unknown;
  readonly signal?: unknown;
  readonly idempotencyKey?: unknown;
}

export function requireValidCall(server: unknown, tool: unknown, options: CheckedOptions): void {
  const { deadlineMs, signal, idempotencyKey } = options;
  if (server !== undefined && !isName(server)) throw invalid('server', 'is not a name', 'give the name of a server');
  if (!isName(tool)) throw invalid('tool', 'is not a name', 'give the name of a tool');
  if (deadlineMs !== undefined && !(typeof deadlineMs === 'number' && !Number.isNaN(deadlineMs)))
    throw invalid('deadlineMs', 'is not a number', 'give the milliseconds that the call may take, or leave it out');
  if (signal !== undefined && !isCancelSignal(signal))
    throw invalid('signal', 'is not an AbortSignal', 'give the signal of an AbortController');
  if (idempotencyKey !== undefined && !isText(idempotencyKey, idempotencyKeyCharsMax))
    throw invalid('idempotencyKey', `is not a text of 1 to ${idempotencyKeyCharsMax} characters`, 'give a shorter one');
}

export function argumentsBytes(target: CallTarget, args: ToolArguments): Buffer {
  const bytes = writtenArguments(args);
  if (bytes.length > argumentBytesMax) throw tooLargeCall(target, argumentBytesMax, bytes.length);
  return bytes;
}

/** A caller may choose any text; keys on the wire are short names. */
export const callKey = (key: string): string => (idPattern.test(key) ? key : hash('sha256', key, 'base64url'));

function writtenArguments(args: ToolArguments): Buffer {
  if (typeof args === 'string' || args instanceof Uint8Array) {
    checkObject(args, 'arguments');
    return toBuffer(args);
  }
  let text: string | undefined;
  try {
    text = JSON.stringify(args);
  } catch (cause) {
    throw invalid('args', 'cannot be written as JSON', 'give an object without cycles, functions and BigInts', cause);
  }
  if (text?.startsWith('{')) return Buffer.from(text);
  throw invalid('args', 'is not an object', 'give an object, or the text of a JSON object');
}

const isText = (value: unknown, charsMax: number): boolean =>
  typeof value === 'string' && value.length > 0 && value.length <= charsMax;
const isName = (value: unknown): boolean => isText(value, brokerLimits.nameChars);

const invalid = (field: string, what: string, hint: string, cause?: unknown): HostError =>
  notExecuted('invalid_arguments', `${field} ${what}`, hint, { field, cause });
