/** Bounds of one client over stdio. */
import { LIMITS } from '../../kernel/limits.js';

/** Requests in progress, and the bytes of their messages. */
export const exchangesMax = 1_000;
export const exchangeBytesMax = 64 * 1024 * 1024;
/** Bytes that the client has not read: from here on nothing more is read from it. */
export const pauseBytes = 1024 * 1024;
/** From here on notifications are dropped. */
export const noticeBytesMax = LIMITS.outboundBytes;
/** From here on an answer is replaced by an error that says so. */
export const answerBytesMax = 64 * 1024 * 1024;
