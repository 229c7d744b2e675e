/** What the headers of a POST must say before its body is worth reading. */
import { REFUSALS, type Refusal } from './refusals.js';
import type { RequestHead } from './request-head.js';

const jsonType = /^application\/json[ \t]*(;.*)?$/i;
const acceptsJson = /(^|[\s,])(\*\/\*|application\/(json|\*))/i;
export const acceptsEvents = /(^|[\s,])(\*\/\*|text\/(event-stream|\*))/i;
/** What clients of the protocol send. */
const usualType = 'application/json';
const usualAccept = 'application/json, text/event-stream';
const lengthText = /^[0-9]{1,15}$/;

export function checkPost(head: RequestHead, bodyBytesMax: number): Refusal | undefined {
  const { contentType, accept, contentLength } = head;
  // A page of another site can send a form or a text without being asked first, but no JSON.
  if (contentType !== usualType && (contentType === undefined || !jsonType.test(contentType)))
    return REFUSALS.contentType;
  if (accept !== undefined && accept !== usualAccept && !(acceptsJson.test(accept) && acceptsEvents.test(accept)))
    return REFUSALS.accept;
  if (contentLength !== undefined && !(Number(contentLength) <= bodyBytesMax)) return REFUSALS.body;
  return undefined;
}

/** So much of a body that was refused is read and thrown away, for the sake of a connection that goes on. */
const drainedBytesMax = 16 * 1024 * 1024;

/** Whether the rest of a refused request is too much, or of unknown length. */
export function isTooMuchToDrain(head: RequestHead): boolean {
  const { contentLength } = head;
  if (contentLength === undefined) return head.other('transfer-encoding') !== undefined;
  return !lengthText.test(contentLength) || Number(contentLength) > drainedBytesMax;
}
