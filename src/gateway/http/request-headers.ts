/**
 * The headers of a request, and the checks of a POST before its body is read.
 * Invariant: the server joins duplicate headers with a comma (`joinDuplicateHeaders`). So a duplicate Host, key or method equals
 * nothing that is allowed, where a reader that takes the first or the last would accept one of the two.
 */
import { REFUSALS, type Refusal } from './refusals.js';

/** By name, in lower case. */
export type RequestHeaders = Readonly<Record<string, string | undefined>>;

const jsonType = /^application\/json[ \t]*(;.*)?$/i;
const acceptsJson = /(^|[\s,])(\*\/\*|application\/(json|\*))/i;
const acceptsEvents = /(^|[\s,])(\*\/\*|text\/(event-stream|\*))/i;
/** What clients of the protocol send. */
const usualType = 'application/json';
const usualAccept = 'application/json, text/event-stream';
const clientName = /^[A-Za-z0-9._~-]{1,128}$/;
const lengthText = /^[0-9]{1,15}$/;
/** So much of a refused body is read and dropped, to keep its connection. */
const drainedBytesMax = 16 * 1024 * 1024;

export function checkPost(headers: RequestHeaders, bodyBytesMax: number): Refusal | undefined {
  const { 'content-type': type, 'content-length': length, accept } = headers;
  // A page of another site can send a form or a text without a preflight, but no JSON.
  if (type !== usualType && (type === undefined || !jsonType.test(type))) return REFUSALS.contentType;
  if (accept !== undefined && accept !== usualAccept && !(acceptsJson.test(accept) && acceptsEvents.test(accept)))
    return REFUSALS.accept;
  return length !== undefined && !(Number(length) <= bodyBytesMax) ? REFUSALS.body : undefined;
}

/** Whether `Hostler-Client` may have this value. */
export const isClientName = (value: string): boolean => clientName.test(value);

export const acceptsStream = ({ accept }: RequestHeaders): boolean =>
  accept === undefined || acceptsEvents.test(accept);

/** Whether the rest of a refused request is too much to read, or of unknown length. */
export function isTooMuchToDrain(headers: RequestHeaders): boolean {
  const length = headers['content-length'];
  if (length === undefined) return headers['transfer-encoding'] !== undefined;
  return !lengthText.test(length) || Number(length) > drainedBytesMax;
}
