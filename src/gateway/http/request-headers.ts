/**
 * The headers of a request, and the checks of a POST before its body is read.
 * Invariant: the server joins duplicate headers with a comma (`joinDuplicateHeaders`). A duplicate Host, key or method then
 * never equals an allowed value. Taking the first or the last of two headers would accept one of them.
 */
import { REFUSALS, type Refusal } from './refusals.js';

/** Header values by lower-case name. */
export type RequestHeaders = Readonly<Record<string, string | undefined>>;

const jsonType = /^application\/json[ \t]*(;.*)?$/i;
const acceptsJson = /(^|[\s,])(\*\/\*|application\/(json|\*))/i;
const acceptsEvents = /(^|[\s,])(\*\/\*|text\/(event-stream|\*))/i;
/** The exact values that MCP clients send, compared before the slower patterns. */
const usualType = 'application/json';
const usualAccept = 'application/json, text/event-stream';
const clientName = /^[A-Za-z0-9._~-]{1,128}$/;
const lengthText = /^[0-9]{1,15}$/;
/** Largest refused body that is read and dropped in order to reuse the connection. */
const drainedBytesMax = 16 * 1024 * 1024;

export function checkPost(headers: RequestHeaders, bodyBytesMax: number): Refusal | undefined {
  const { 'content-type': type, 'content-length': length, accept } = headers;
  // A page of another site can send forms or plain text without a preflight, but not JSON.
  if (type !== usualType && (type === undefined || !jsonType.test(type))) return REFUSALS.contentType;
  if (accept !== undefined && accept !== usualAccept && !(acceptsJson.test(accept) && acceptsEvents.test(accept)))
    return REFUSALS.accept;
  return length !== undefined && !(Number(length) <= bodyBytesMax) ? REFUSALS.body : undefined;
}

export const isClientName = (value: string): boolean => clientName.test(value);

export const acceptsStream = ({ accept }: RequestHeaders): boolean =>
  accept === undefined || acceptsEvents.test(accept);

/** Whether the body of a refused request is too long to drain, or of unknown length. */
export function isTooMuchToDrain(headers: RequestHeaders): boolean {
  const length = headers['content-length'];
  if (length === undefined) return headers['transfer-encoding'] !== undefined;
  return !lengthText.test(length) || Number(length) > drainedBytesMax;
}
