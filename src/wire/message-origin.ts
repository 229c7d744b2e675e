/**
 * The request of ours that a message of the server belongs to, as the channel knows it. It is proof: what comes with an origin
 * goes to that request, or to no client once the request has ended.
 */

/**
 * The frame in whose response stream the message came (HTTP), or the id that was named with the message (`relatedRequestId` of a
 * transport that carries one). An id may be of a request that has ended: ids are never used twice.
 */
export type MessageOrigin = RequestFrame | number;

/** As much of a frame (channel.ts) as is needed here. */
interface RequestFrame {
  readonly id: number | undefined;
}

/** Undefined: there is no origin, or the frame is no request. */
export const originId = (origin: MessageOrigin | undefined): number | undefined =>
  typeof origin === 'object' ? origin.id : origin;
