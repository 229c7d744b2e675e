/**
 * In which words a request is read and answered: those of this version, or the older ones where they are allowed.
 * Not here: the words themselves (messages.ts, older-messages.ts), those of the worker's side (worker/dialect.ts).
 *
 * Invariant: a request is answered in the words it was asked in.
 */
import type { HostError } from '../../kernel/errors.js';
import type { Era } from '../../wire/channel.js';
import type { JsonText } from '../../wire/frame.js';
import { memberBytes } from '../../wire/json-members.js';
import { errorReply, type Request, readRequest, resultReply } from '../messages.js';
import { olderErrorReply, olderManifestReply, olderResultReply, readOlderRequest } from '../older-messages.js';
import { type Delivery, ttlMsMax } from '../ports.js';
import { flatName, type RoleManifest } from './manifests.js';

export interface ReplyWords {
  /** Throws a HostError that says what is wrong. */
  request(delivery: Delivery): Request;
  /** `of`: which request it is about, where its key may have been another's. */
  result(bytes: Buffer, era: Era, of?: string): readonly JsonText[];
  error(error: HostError, of?: string): readonly JsonText[];
  manifest(shown: RoleManifest): readonly JsonText[];
}

const current: ReplyWords = {
  request: ({ body }) => readRequest(body),
  result: resultReply,
  error: errorReply,
  manifest: ({ body }) => [body],
};

const older: ReplyWords = {
  request: ({ id, body }) => {
    const request = readOlderRequest(body);
    if (request.op === 'manifest') return request;
    return {
      ...request,
      callKey: id,
      // They have no time of their own: that of their message counts.
      deadlineMs: ttlMsMax,
      server: undefined,
      manifestRevision: undefined,
      trace: undefined,
      wantsProgress: false,
      isCallersKey: false,
    };
  },
  result: (bytes) => [olderResultReply(bytes)],
  error: (error) => [olderErrorReply(error)],
  manifest: ({ manifest, byName }) => [
    olderManifestReply(manifest.tools.map((tool) => ({ name: flatName(tool, byName), raw: tool.raw }))),
  ],
};

/** Every body of ours says its version. */
export const wordsOf = (body: Buffer, isOlderAllowed: boolean): ReplyWords =>
  isOlderAllowed && memberBytes(body, 'v') === undefined ? older : current;
