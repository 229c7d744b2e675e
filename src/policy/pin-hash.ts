/**
 * The fingerprint of what a server declares: a tool, a prompt, a resource, a resource template, or its instructions.
 * It covers the whole object, because any part of it may steer a model or decide whether a call is repeated.
 * Not here: what is done about a fingerprint that changed (pins.ts).
 *
 * Invariants: one meaning has one hash, however it is written; two meanings, or two kinds, never share one; a text that
 * two readers may read differently (broken, a key twice, nested too deep) has none, nor one of more values than anybody means.
 */
import { hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { JsonText } from '../wire/frame.js';
import { eachMember } from '../wire/json-scan.js';
import { canonicalText } from './canonical-json.js';

export type PinKind = 'tool' | 'prompt' | 'resource' | 'resourceTemplate' | 'instructions';

/** Lower-case hex of SHA-256. */
export interface PinHash {
  readonly hash: string;
  /** Without the name: equal for one definition under two names. */
  readonly bodyHash: string;
}

const keyMembers: Readonly<Record<PinKind, string | undefined>> = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  resourceTemplate: 'uriTemplate',
  instructions: undefined,
};

/** What the protocol says of a tool that says nothing. In the order of their names. */
const hintDefaults: ReadonlyArray<readonly [hint: string, text: string]> = [
  ['destructiveHint', 'true'],
  ['idempotentHint', 'false'],
  ['openWorldHint', 'true'],
  ['readOnlyHint', 'false'],
];

/** `raw` is the text of one JSON value as the server wrote it. */
export function pinHash(kind: PinKind, raw: JsonText): PinHash | undefined {
  const text = canonicalOf(raw);
  if (text === undefined) return undefined;
  const members = membersOf(text);
  if (!members) return { hash: digest(kind, 'whole', text), bodyHash: digest(kind, 'body', text) };
  const annotations = annotationsOf(kind, members.get('annotations'));
  // Without this, saying nothing and saying an empty object would differ.
  if (annotations === undefined) members.delete('annotations');
  else members.set('annotations', annotations);
  const whole = objectText(members);
  const name = keyMembers[kind];
  if (name !== undefined) members.delete(name);
  return { hash: digest(kind, 'whole', whole), bodyHash: digest(kind, 'body', objectText(members)) };
}

function canonicalOf(raw: JsonText): string | undefined {
  try {
    return canonicalText(raw, LIMITS.toolValues);
  } catch (error) {
    if (isHostError(error)) return undefined;
    throw error;
  }
}

/** An explicit default says no more than silence; anything that is not an object is left as it stands. */
function annotationsOf(kind: PinKind, text: string | undefined): string | undefined {
  if (kind !== 'tool') return text === '{}' ? undefined : text;
  const members = membersOf(text ?? '{}');
  if (!members) return text;
  for (const [hint, value] of hintDefaults) if (!members.has(hint)) members.set(hint, value);
  return objectText(members);
}

/** The members of canonical text by their keys as written; undefined when it is no object. */
function membersOf(text: string): Map<string, string> | undefined {
  if (!text.startsWith('{')) return undefined;
  const bytes = Buffer.from(text);
  const members = new Map<string, string>();
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    members.set(bytes.toString('utf8', keyStart, keyEnd), bytes.toString('utf8', valueStart, valueEnd));
    return true;
  });
  return members;
}

/** Any fixed order of the keys serves: each value is canonical already. */
const objectText = (members: ReadonlyMap<string, string>): string =>
  `{${[...members.keys()]
    .sort()
    .map((key) => `"${key}":${members.get(key)}`)
    .join(',')}}`;

/** Each part is preceded by its length, so that no text can pass for the end of one part and the start of another. */
function digest(...parts: readonly string[]): string {
  return hash('sha256', parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join(''), 'hex');
}

/** One listed definition; the key is empty when the server gave it no name. */
export interface PinItem {
  readonly key: string;
  readonly raw: Buffer;
}

/** A name's one definition in a list; no hash when it stands there twice or has none. */
export interface Hashed {
  readonly raw: Buffer;
  readonly hashes: PinHash | undefined;
}

type HashedList = ReadonlyMap<string, Hashed>;

/** What is hashed in one turn of the event loop: a few milliseconds of work. */
const sliceBytes = 64 * 1024;
/** Items that are compared and judged in one turn. */
const itemsMax = 1_000;
/** What an item costs beside its bytes. */
const itemBytes = 512;

export class PinHashes {
  readonly #kind: PinKind;
  readonly #make: (kind: PinKind, raw: Buffer) => PinHash | undefined;
  /** By server and name, of its last list. As large as that list, which is kept anyway. */
  readonly #last = new Map<string, HashedList>();
  /** Made ahead, by list, until that is judged. */
  readonly #ahead = new WeakMap<readonly PinItem[], Map<Buffer, Hashed>>();

  constructor(kind: PinKind, make: (kind: PinKind, raw: Buffer) => PinHash | undefined = pinHash) {
    this.#kind = kind;
    this.#make = make;
  }

  /** The hash of one text, whichever list it comes from. */
  of(raw: Buffer): PinHash | undefined {
    return this.#make(this.#kind, raw);
  }

  /** Makes those that are missing; undefined when they are so few that it can as well be done later. */
  ahead(server: string, items: readonly PinItem[]): Promise<void> | undefined {
    const last = this.#last.get(server);
    const missing = items.filter(({ key, raw }) => key !== '' && !known(last, key, raw));
    const cost = missing.reduce((sum, { raw }) => sum + costOf(raw), 0);
    if (cost > sliceBytes) return this.#inSlices(items, missing);
    // To have compared so many is enough for one turn.
    return items.length > itemsMax ? nextTurn() : undefined;
  }

  /** By name; no hash for a name that is listed twice, since it is ambiguous. */
  ofList(server: string, items: readonly PinItem[]): HashedList {
    const last = this.#last.get(server);
    const ahead = this.#ahead.get(items);
    this.#ahead.delete(items);
    const listed = new Map<string, Hashed>();
    const twice = new Set<string>();
    for (const { key, raw } of items) {
      if (key === '') continue;
      if (listed.has(key)) {
        listed.set(key, { raw, hashes: undefined });
        twice.add(key);
      } else listed.set(key, ahead?.get(raw) ?? known(last, key, raw) ?? this.#hashed(raw));
    }
    this.#last.set(server, without(listed, twice));
    return listed;
  }

  forget(server: string): void {
    this.#last.delete(server);
  }

  async #inSlices(items: readonly PinItem[], missing: readonly PinItem[]): Promise<void> {
    const ahead = new Map<Buffer, Hashed>();
    this.#ahead.set(items, ahead);
    let cost = 0;
    for (const { raw } of missing) {
      ahead.set(raw, this.#hashed(raw));
      cost += costOf(raw);
      if (cost < sliceBytes) continue;
      cost = 0;
      await nextTurn();
    }
    // Judging the list is a turn's work of its own.
    if (cost > 0) await nextTurn();
  }

  #hashed(raw: Buffer): Hashed {
    return { raw, hashes: this.#make(this.#kind, raw) };
  }
}

function known(last: HashedList | undefined, key: string, raw: Buffer): Hashed | undefined {
  const hashed = last?.get(key);
  return hashed?.raw.equals(raw) ? hashed : undefined;
}

/** What stood there twice has no hash of its own to be found again. */
function without(listed: HashedList, twice: ReadonlySet<string>): HashedList {
  return twice.size === 0 ? listed : new Map([...listed].filter(([key]) => !twice.has(key)));
}

const costOf = (raw: Buffer): number => raw.length + itemBytes;
