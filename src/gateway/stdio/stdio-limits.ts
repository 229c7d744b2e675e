/** Bounds of one client over stdio. */
import { LIMITS } from '../../kernel/limits.js';

/** Number of requests in progress, and the bytes of their ids and params. */
export const exchangesMax = 1_000;
export const exchangeBytesMax = 64 * 1024 * 1024;
/** Unread bytes above which input from the client is paused. */
export const pauseBytes = 1024 * 1024;
/** Unread bytes above which notifications are dropped. */
export const noticeBytesMax = LIMITS.outboundBytes;
/** Unread bytes above which an answer is replaced by an error. */
export const answerBytesMax = 64 * 1024 * 1024;
