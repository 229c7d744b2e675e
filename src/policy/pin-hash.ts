/**
 * Hash of a definition of a server: a tool, prompt, resource, resource template, or the instructions. The hash covers the whole
 * object, because any part may steer a model or decide about retries.
 * Not here: handling of a changed hash (pins.ts).
 *
 * Invariants: equal definitions have one hash, however they are written; different definitions or kinds never share one.
 * Ambiguous text (invalid, duplicate key, nested too deep) and text with more than `LIMITS.toolValues` values have no hash.
 */
import { hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { JsonText } from '../wire/channel.js';
import { eachMember } from '../wire/json-scan.js';
import { canonicalText } from './canonical-json.js';

export type PinKind = 'tool' | 'prompt' | 'resource' | 'resourceTemplate' | 'instructions';

/** Both hashes are lower-case hex SHA-256. */
export interface PinHash {
  readonly hash: string;
  /** Hash without the name: equal for one definition under two names. */
  readonly bodyHash: string;
}

const keyMembers: Readonly<Record<PinKind, string | undefined>> = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  resourceTemplate: 'uriTemplate',
  instructions: undefined,
};

/** Defaults of the protocol for absent hints, sorted by name. */
const hintDefaults: ReadonlyArray<readonly [hint: string, text: string]> = [
  ['destructiveHint', 'true'],
  ['idempotentHint', 'false'],
  ['openWorldHint', 'true'],
  ['readOnlyHint', 'false'],
];

/** `raw` is the JSON text of the server. */
export function pinHash(kind: PinKind, raw: JsonText): PinHash | undefined {
  const text = canonicalOf(raw);
  if (text === undefined) return undefined;
  const members = membersOf(text);
  if (!members) return { hash: digest(kind, 'whole', text), bodyHash: digest(kind, 'body', text) };
  const annotations = annotationsOf(kind, members.get('annotations'));
  // No annotations and empty annotations have the same meaning, so they get the same hash.
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

/** Adds default hints, so that an explicit default does not change the hash. Any value except an object is unchanged. */
function annotationsOf(kind: PinKind, text: string | undefined): string | undefined {
  if (kind !== 'tool') return text === '{}' ? undefined : text;
  const members = membersOf(text ?? '{}');
  if (!members) return text;
  for (const [hint, value] of hintDefaults) if (!members.has(hint)) members.set(hint, value);
  return objectText(members);
}

/** Members of canonical text by their keys as written; undefined if the text is not an object. */
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

/** Any fixed order of the keys is sufficient: each value is already canonical. */
const objectText = (members: ReadonlyMap<string, string>): string =>
  `{${[...members.keys()]
    .sort()
    .map((key) => `"${key}":${members.get(key)}`)
    .join(',')}}`;

/** Each part follows its length, so that different parts never give the same text. */
function digest(...parts: readonly string[]): string {
  return hash('sha256', parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join(''), 'hex');
}

/** One listed definition; the key is empty if the server gave it no name. */
export interface PinItem {
  readonly key: string;
  readonly raw: Buffer;
}

/** The definition of a name in a list; without a hash if the name is duplicate or the text is ambiguous. */
export interface Hashed {
  readonly raw: Buffer;
  readonly hashes: PinHash | undefined;
}

type HashedList = ReadonlyMap<string, Hashed>;

/** Bytes hashed per turn of the event loop: a few milliseconds of work. */
const sliceBytes = 64 * 1024;
/** Items compared per turn. */
const itemsMax = 1_000;
const itemBytes = 512;

export class PinHashes {
  readonly #kind: PinKind;
  readonly #make: (kind: PinKind, raw: Buffer) => PinHash | undefined;
  /** Hashes of the last list by server, then by name. */
  readonly #last = new Map<string, HashedList>();
  /** Precomputed hashes by list, until `ofList` uses them. */
  readonly #ahead = new WeakMap<readonly PinItem[], Map<Buffer, Hashed>>();

  constructor(kind: PinKind, make: (kind: PinKind, raw: Buffer) => PinHash | undefined = pinHash) {
    this.#kind = kind;
    this.#make = make;
  }

  /** Hash of one text that need not belong to a list. */
  of(raw: Buffer): PinHash | undefined {
    return this.#make(this.#kind, raw);
  }

  /** Computes missing hashes in slices; undefined if they are so few that `ofList` can compute them. */
  ahead(server: string, items: readonly PinItem[]): Promise<void> | undefined {
    const last = this.#last.get(server);
    const missing = items.filter(({ key, raw }) => key !== '' && !known(last, key, raw));
    const cost = missing.reduce((sum, { raw }) => sum + costOf(raw), 0);
    if (cost > sliceBytes) return this.#inSlices(items, missing);
    // The comparison alone was enough work for one turn.
    return items.length > itemsMax ? nextTurn() : undefined;
  }

  /** Hashes by name; a duplicate name is ambiguous and has no hash. */
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
    // The comparison with the pins gets its own turn.
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

/** A duplicate name must not match the next list. */
function without(listed: HashedList, twice: ReadonlySet<string>): HashedList {
  return twice.size === 0 ? listed : new Map([...listed].filter(([key]) => !twice.has(key)));
}

const costOf = (raw: Buffer): number => raw.length + itemBytes;
