/**
 * Messages that open, check and unblock a session. They have two connections of their own: queued behind the calls of a blocked
 * session, the message that unblocks it would never be sent.
 */
import type { OutboundFrame } from '../../wire/channel.js';
import { isSessionRequest, NOTIFICATION } from '../../wire/rpc-codes.js';

export const controlConnections = 2;
/** A control notification may keep a connection from an `initialize` for this long at most. */
export const controlNoticeMsMax = 2_000;

export const isControl = ({ method }: OutboundFrame): boolean =>
  isSessionRequest(method) || method === NOTIFICATION.cancelled || method === NOTIFICATION.initialized;
