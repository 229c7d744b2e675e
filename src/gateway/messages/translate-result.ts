/**
 * Puts what a server answered into the words of its client's era, in the bytes, so that everything else stays to the digit.
 * Not here: answers that ask for more (bridge/), errors (failures.ts).
 * Invariants: a result whose eras are the same is handed on untouched, except for a resource that must not be kept for others; a
 * modern result always says what kind it is.
 */
import { META } from '../../session/eras/modern/protocol.js';
import type { Era } from '../../wire/channel.js';
import type { JsonText } from '../../wire/frame.js';
import { editMembers, type MemberEdits, spliceMeta } from '../../wire/json-edit.js';
import { isObject, memberString } from '../../wire/json-members.js';
import { skipSpace } from '../../wire/json-scan.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { RpcFailure } from '../exchange.js';

/** The parts of one result object, or why there is none in those words. */
export type TranslatedResult = readonly JsonText[] | RpcFailure;

export interface ResultContext {
  readonly from: Era;
  readonly to: Era;
  readonly method: string;
  /** Who answered: one JSON object. */
  readonly serverInfo: string;
  /** False: there are keys or roles, and what one caller reads must not be kept for another, whatever the server says. */
  readonly mayBePublic: boolean;
}

export function translateResult(bytes: Buffer, wording: ResultContext): TranslatedResult {
  if (!isObject(bytes)) return noResult('is not an object');
  if (wording.from === wording.to) {
    const isPrivate = wording.to === 'modern' && isCacheable(wording.method) && !wording.mayBePublic;
    return isPrivate ? toPrivate(bytes) : [bytes];
  }
  return wording.to === 'modern' ? toModern(bytes, wording) : toLegacy(bytes);
}

/** Only what may be kept says for how long; nobody promised that for a legacy server's. */
export const isCacheable = (method: string): boolean => method === 'resources/read';

const mark = Buffer.from('"resultType"');
const meta = Buffer.from('"_meta"');
const ttl = Buffer.from('"ttlMs"');
const scope = Buffer.from('"cacheScope"');
/** A key may be written in escapes; then its text is looked at member by member. */
const escaped = Buffer.from('\\u00');

function toModern(bytes: Buffer, { method, serverInfo }: ResultContext): TranslatedResult {
  const hints = isCacheable(method) ? ',"ttlMs":0,"cacheScope":"private"' : '';
  const isPlain = ![mark, meta, escaped, ...(hints === '' ? [] : [ttl, scope])].some((word) => bytes.includes(word));
  if (isPlain) {
    const isEmpty = bytes[skipSpace(bytes, 1, bytes.length)] === CLOSE_BRACE;
    const head = `{"resultType":"complete"${hints},"_meta":{"${META.serverInfo}":${serverInfo}}${isEmpty ? '' : ','}`;
    return [head, bytes.subarray(1)];
  }
  const edits: MemberEdits = [
    ['resultType', '"complete"'],
    ...(hints === ''
      ? []
      : ([
          ['ttlMs', '0'],
          ['cacheScope', '"private"'],
        ] as const)),
  ];
  const worded = editMembers(bytes, edits);
  if (!worded) return noResult('says twice what kind it is');
  try {
    return [spliceMeta(worded, [[META.serverInfo, serverInfo]])];
  } catch {
    // Its `_meta` is not one that anything could be put into; who answered is only for show.
    return [worded];
  }
}

const CLOSE_BRACE = 0x7d;

/** A result that asks for more (`input_required`) is never cached, and stays as it is. */
function toPrivate(bytes: Buffer): TranslatedResult {
  const kind = memberString(bytes, 'resultType');
  if (kind !== undefined && kind !== 'complete') return [bytes];
  const worded = editMembers(bytes, [['cacheScope', '"private"']]);
  return worded ? [worded] : noResult('has two members called cacheScope');
}

function toLegacy(bytes: Buffer): TranslatedResult {
  if (![mark, ttl, scope, escaped].some((word) => bytes.includes(word))) return [bytes];
  const kind = memberString(bytes, 'resultType');
  if (kind !== undefined && kind !== 'complete') return noResult('is of a kind that this client cannot take');
  const worded = editMembers(bytes, [
    ['resultType', undefined],
    ['ttlMs', undefined],
    ['cacheScope', undefined],
  ]);
  return worded ? [worded] : noResult('is not an object');
}

const noResult = (what: string): RpcFailure => ({
  code: RPC.internalError,
  message: `the result of the server ${what}`,
});
