/** In which words a worker and its host speak: those of messages.ts, or the older ones where that is asked for. */
import type { JsonText } from '../../wire/frame.js';
import { type CallRequest, callRequest, manifestRequest, type Reply, readReply } from '../messages.js';
import { olderCallRequest, olderManifestRequest, readOlderReply } from '../older-messages.js';

export type CallWords = Omit<CallRequest, 'op' | 'args'> & { readonly args: JsonText };

export interface Dialect {
  manifestRequest(): Buffer;
  callRequest(call: CallWords): Buffer;
  /** Throws a HostError when it cannot be read. */
  readReply(body: Buffer): Reply;
}

export const currentDialect: Dialect = { manifestRequest, callRequest, readReply };

/** Key and deadline have no place in these bodies; the envelope around them has both. */
export const olderDialect: Dialect = {
  manifestRequest: olderManifestRequest,
  callRequest: ({ tool, args }) => olderCallRequest(tool, args),
  readReply: readOlderReply,
};
