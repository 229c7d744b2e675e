/**
 * Changes single members of a JSON object in its bytes and leaves every other member as it came, to the digit.
 * Not here: `_meta` inside `params` (wire/meta-splice.ts).
 * Invariant: what comes out has each edited key at most once; an object in which one that is to be replaced stands twice is
 * not guessed at.
 */
import type { JsonText } from '../../wire/frame.js';
import { keyIs } from '../../wire/json-members.js';
import { eachMember } from '../../wire/json-scan.js';

/** An ASCII key → its value as JSON text, or undefined to take the member out. */
export type MemberEdits = ReadonlyArray<readonly [key: string, json: JsonText | undefined]>;

const comma = Buffer.from(',');

/** Replaced in place; what was not there is put in front. Undefined: not one object, or a key to be replaced stands twice. */
export function editMembers(bytes: Buffer, edits: MemberEdits): Buffer | undefined {
  const chunks: Uint8Array[] = [];
  const done = new Set<number>();
  let isDoubled = false;
  let runStart = -1;
  let lastEnd = -1;
  let kept = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    const at = edits.findIndex(([key]) => keyIs(bytes, keyStart, keyEnd, key));
    const json = edits[at]?.[1];
    if (at >= 0 && json === undefined) {
      if (runStart >= 0) chunks.push(bytes.subarray(runStart, lastEnd));
      runStart = -1;
      return undefined;
    }
    if (runStart < 0) {
      if (kept > 0) chunks.push(comma);
      runStart = keyStart - 1;
    }
    kept++;
    lastEnd = valueEnd;
    if (json === undefined) return undefined;
    isDoubled ||= done.has(at);
    done.add(at);
    chunks.push(bytes.subarray(runStart, valueStart), toBytes(json));
    runStart = valueEnd;
    return !isDoubled;
  });
  if (after < 0 || isDoubled) return undefined;
  if (runStart >= 0) chunks.push(bytes.subarray(runStart, lastEnd));
  const front: Uint8Array[] = [];
  for (const [at, [key, json]] of edits.entries()) {
    if (json === undefined || done.has(at)) continue;
    front.push(Buffer.from(`${front.length === 0 ? '' : ','}${JSON.stringify(key)}:`), toBytes(json));
  }
  if (front.length > 0 && kept > 0) front.push(comma);
  return Buffer.concat([Buffer.from('{'), ...front, ...chunks, Buffer.from('}')]);
}

const toBytes = (json: JsonText): Uint8Array => (typeof json === 'string' ? Buffer.from(json) : json);
