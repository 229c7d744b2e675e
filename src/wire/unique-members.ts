/**
 * Members of a request's params, for requests that are acted on. The same params are asked about several times in one tick, by
 * the ingress and by the router: they are walked once, and the last walk is remembered.
 * Invariant: a request in which one of the members asked for stands twice is refused, never read as if it were not there.
 */
import { LIMITS } from '../kernel/limits.js';
import { keyIs } from './json-members.js';
import { eachMember } from './json-scan.js';

/** Where members stand, four numbers each: key from and to, value from and to. */
interface Walk {
  bytes: Buffer;
  readonly places: number[];
  /** The values that were asked for, each where its member begins in `places`: the next who asks gets the same view. */
  readonly views: (Buffer | undefined)[];
  /** Not an object, or one with too many members. */
  isBad: boolean;
}

const BACKSLASH = 0x5c;
const nothing = Buffer.alloc(0);
const last: Walk = { bytes: nothing, places: [], views: [], isBad: true };

function walk(bytes: Buffer): Walk {
  if (last.bytes === bytes) return last;
  const { places, views } = last;
  places.length = 0;
  views.length = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    places.push(keyStart, keyEnd, valueStart, valueEnd);
    return places.length <= 4 * LIMITS.members;
  });
  last.isBad = after < 0 || places.length > 4 * LIMITS.members;
  last.bytes = bytes;
  // A large message must not be held on to until the next one comes, but it is asked about as often as any other.
  if (bytes.length > rememberedBytesMax) setImmediate(forget, bytes);
  return last;
}

const rememberedBytesMax = 64 * 1024;

function forget(bytes: Buffer): void {
  if (last.bytes !== bytes) return;
  last.bytes = nothing;
  last.views.length = 0;
}

/** The place of a key; -1: it is not there, -2: it stands there twice. */
function placeOf(bytes: Buffer, places: readonly number[], key: string): number {
  let found = -1;
  for (let i = 0; i < places.length; i += 4) {
    if (!keyIs(bytes, places[i] as number, places[i + 1] as number, key)) continue;
    if (found >= 0) return -2;
    found = i;
  }
  return found;
}

function viewOf({ bytes: remembered, places, views }: Walk, bytes: Buffer, at: number): Buffer {
  if (bytes !== remembered) return bytes.subarray(places[at + 2], places[at + 3]);
  const member = at / 4;
  // In order, so that the list has no holes.
  while (views.length <= member) views.push(undefined);
  let view = views[member];
  if (!view) {
    view = bytes.subarray(places[at + 2], places[at + 3]);
    views[member] = view;
  }
  return view;
}

/** Views in the order of the keys. Undefined: not an object, one of the keys stands twice, or there are too many others. */
export function uniqueMembers(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] | undefined {
  const walked = walk(bytes);
  const { places, isBad } = walked;
  if (isBad) return undefined;
  const found: (Buffer | undefined)[] = [];
  for (let i = 0; i < keys.length; i++) found.push(undefined);
  for (let at = 0; at < places.length; at += 4) {
    const which = whichKey(bytes, places[at] as number, places[at + 1] as number, keys);
    if (which < 0) continue;
    if (found[which] !== undefined) return undefined;
    found[which] = viewOf(walked, bytes, at);
  }
  return found;
}

/** -1: none of them. A key without a backslash is as long as what it stands for, which settles most of them. */
function whichKey(bytes: Buffer, start: number, end: number, keys: readonly string[]): number {
  let isPlain = true;
  for (let i = start; i < end && isPlain; i++) isPlain = bytes[i] !== BACKSLASH;
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string;
    if ((!isPlain || key.length === end - start) && keyIs(bytes, start, end, key)) return i;
  }
  return -1;
}

/** The same, where a key that stands twice is nobody's (wire/json-members.ts). All undefined for what is no object. */
export function singleMembers(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] {
  const walked = walk(bytes);
  const { places, isBad } = walked;
  return keys.map((key) => {
    const at = isBad ? -1 : placeOf(bytes, places, key);
    return at < 0 ? undefined : viewOf(walked, bytes, at);
  });
}
