/** In which words a request is read and answered: those of this version, or the older ones where they are allowed. */
import type { HostError } from '../../kernel/errors.js';
import type { Era } from '../../wire/channel.js';
import type { JsonText } from '../../wire/frame.js';
import { errorReply, type Request, readRequest, resultReply } from '../messages.js';
import type { Delivery } from '../ports.js';
import type { RoleManifest } from './manifests.js';

export interface ReplyWords {
  request(delivery: Delivery): Request;
  result(bytes: Buffer, era: Era): readonly JsonText[];
  error(error: HostError): readonly JsonText[];
  manifest(shown: RoleManifest): readonly JsonText[];
}

const current: ReplyWords = {
  request: ({ body }) => readRequest(body),
  result: resultReply,
  error: errorReply,
  manifest: ({ body }) => [body],
};

export const wordsOf = (_body: Buffer, _isOlderAllowed: boolean): ReplyWords => current;

export const requestOf = (delivery: Delivery, words: ReplyWords): Request => words.request(delivery);
