/**
 * Cache of answers that a server allowed to cache: one instance for calls, one for lists and reads. The key is server,
 * fingerprint, subject (tool or method) and canonical arguments, and for private answers the principal and its role.
 * Not here: when the cache is used (cache-stage.ts), which items a principal may see (allowlist.ts, checked each time).
 *
 * Invariants: an answer requested before a drop is never stored after it. Callers get copies of the stored bytes.
 */

import { unpooledCopy } from '../kernel/byte-buffer.js';
import type { Clock } from '../kernel/clock.js';
import type { Era } from '../wire/channel.js';
import { keyIs } from '../wire/json-members.js';
import { eachMember } from '../wire/json-scan.js';
import { compositeKey, principalKey } from './composite-key.js';
import { copyItems, type Item, type Principal } from './operation.js';

export interface CachePlan<Value> {
  readonly entriesPerSubjectMax: number;
  readonly entryBytesMax: (subject: string) => number;
  readonly bytesMax: number;
  readonly ttlMsMax: number;
  readonly bytesOf: (value: Value) => number;
  readonly copyOf: (value: Value) => Value;
}

/** A result of `tools/call` and its protocol era. */
export interface CachedCall {
  readonly bytes: Buffer;
  readonly era: Era;
}

const MiB = 1024 * 1024;
const dayMs = 24 * 3_600_000;

export const callCachePlan: CachePlan<CachedCall> = {
  entriesPerSubjectMax: 64,
  entryBytesMax: () => MiB,
  bytesMax: 64 * MiB,
  ttlMsMax: dayMs,
  bytesOf: ({ bytes }) => bytes.length,
  copyOf: ({ bytes, era }) => ({ bytes: unpooledCopy(bytes), era }),
};

/** Estimated memory of an item in addition to its bytes. */
const itemOverheadBytes = 128;

export const listCachePlan: CachePlan<readonly Item[]> = {
  entriesPerSubjectMax: 1_024,
  entryBytesMax: (method) => (method === 'resources/read' ? MiB : 16 * MiB),
  bytesMax: 64 * MiB,
  ttlMsMax: dayMs,
  bytesOf: (items) => items.reduce((sum, { raw }) => sum + raw.length + itemOverheadBytes, 0),
  copyOf: copyItems,
};

export interface Question {
  readonly server: string;
  /** Tool of a call, or method of a list or read. */
  readonly subject: string;
  /** Changes with the definition of the server, which invalidates old answers. */
  readonly fingerprint: string;
  readonly principal: Principal;
  /**
   * Hash of a call's arguments, or URI of a read. The hash is the most expensive step here, so it is computed on demand.
   * Undefined: the arguments have no canonical form.
   */
  argumentsKey(): string | undefined;
}

export interface CacheStats {
  readonly hits: number;
  readonly misses: number;
  readonly entries: number;
  readonly bytes: number;
}

interface Entry<Value> {
  readonly server: string;
  readonly subject: string;
  readonly argumentsKey: string;
  readonly key: string;
  readonly value: Value;
  readonly cost: number;
  readonly expiresAtMs: number;
}

/** Estimated memory of an entry in addition to its bytes; so `bytesMax` also bounds the number of entries. */
const entryOverheadBytes = 512;

/** Bound of keys with their own epoch. */
const dropsMax = 4_096;

export class ResponseCache<Value> {
  readonly #clock: Clock;
  readonly #plan: CachePlan<Value>;
  /** Entries by server, subject and key. */
  readonly #servers = new Map<string, Map<string, Map<string, Entry<Value>>>>();
  /** All entries, oldest insertion first. */
  readonly #entries = new Set<Entry<Value>>();
  #bytes = 0;
  /** Lower bound of all expiry times. */
  #soonestExpiryMs = Number.POSITIVE_INFINITY;
  #hits = 0;
  #misses = 0;
  readonly #epochs = new Epochs(dropsMax);

  constructor(clock: Clock, plan: CachePlan<Value>) {
    this.#clock = clock;
    this.#plan = plan;
  }

  stats(): CacheStats {
    return { hits: this.#hits, misses: this.#misses, entries: this.#entries.size, bytes: this.#bytes };
  }

  entriesOf(server: string, subject?: string): number {
    if (subject !== undefined) return this.#servers.get(server)?.get(subject)?.size ?? 0;
    let count = 0;
    for (const bucket of this.#servers.get(server)?.values() ?? []) count += bucket.size;
    return count;
  }

  /** Read it, or `epochOf`, when a request is sent, and pass it to `put` with the answer. */
  get epoch(): number {
    return this.#epochs.now;
  }

  /** Changes when the subject or its server is dropped. */
  epochOf(server: string, subject: string): number {
    return Math.max(this.#epochs.of(compositeKey(server)), this.#epochs.of(compositeKey(server, subject)));
  }

  /** True if nothing of the subject is cached; counts a miss. */
  misses(server: string, subject: string): boolean {
    if (this.#servers.size > 0 && this.#servers.get(server)?.has(subject)) return false;
    this.#misses++;
    return true;
  }

  /** Returns a copy. A private answer of the principal has priority over the public one. */
  get(question: Question): Value | undefined {
    const bucket = this.#servers.get(question.server)?.get(question.subject);
    const key = bucket && question.argumentsKey();
    const entry =
      bucket && key !== undefined
        ? (this.#fresh(bucket, keyOf(question, key, false)) ?? this.#fresh(bucket, keyOf(question, key, true)))
        : undefined;
    if (!entry) {
      this.#misses++;
      return undefined;
    }
    this.#hits++;
    return this.#plan.copyOf(entry.value);
  }

  /** Stores a copy; false if the answer is not stored. */
  put(question: Question, value: Value, hint: CacheHint, epoch: number): boolean {
    const { server, subject } = question;
    const { bytesOf, copyOf, entryBytesMax, bytesMax, ttlMsMax } = this.#plan;
    const bytes = bytesOf(value);
    if (!(hint.ttlMs > 0) || this.epochOf(server, subject) > epoch || bytes > entryBytesMax(subject)) return false;
    const argumentsKey = question.argumentsKey();
    if (argumentsKey === undefined) return false;
    const cost = bytes + entryOverheadBytes + argumentsKey.length;
    if (cost > bytesMax) return false;
    const key = keyOf(question, argumentsKey, hint.isPublic);
    const previous = this.#servers.get(server)?.get(subject)?.get(key);
    if (previous) this.#remove(previous);
    const nowMs = this.#clock.nowMs();
    this.#makeRoom(server, subject, cost, nowMs);
    const expiresAtMs = nowMs + Math.min(hint.ttlMs, ttlMsMax);
    const entry: Entry<Value> = { server, subject, argumentsKey, key, value: copyOf(value), cost, expiresAtMs };
    const subjects = this.#servers.get(server) ?? new Map<string, Map<string, Entry<Value>>>();
    const bucket = subjects.get(subject) ?? new Map<string, Entry<Value>>();
    this.#servers.set(server, subjects.set(subject, bucket.set(key, entry)));
    this.#entries.add(entry);
    this.#bytes += cost;
    this.#soonestExpiryMs = Math.min(this.#soonestExpiryMs, expiresAtMs);
    return true;
  }

  /** Drops answers of a server, of one subject, or with matching arguments. Later answers to requests that are in flight now are not stored. */
  drop(server: string, subject?: string, matches: (argumentsKey: string) => boolean = () => true): void {
    const subjects = this.#servers.get(server);
    const buckets = subject === undefined ? [...(subjects?.values() ?? [])] : [subjects?.get(subject)];
    for (const bucket of buckets)
      for (const entry of bucket?.values() ?? []) if (matches(entry.argumentsKey)) this.#remove(entry);
    this.#epochs.advance(subject === undefined ? compositeKey(server) : compositeKey(server, subject));
  }

  dropAll(): void {
    for (const entry of this.#entries) this.#remove(entry);
    this.#epochs.advanceAll();
  }

  #fresh(bucket: Map<string, Entry<Value>>, key: string): Entry<Value> | undefined {
    const entry = bucket.get(key);
    if (!entry || this.#clock.nowMs() < entry.expiresAtMs) return entry;
    this.#remove(entry);
    return undefined;
  }

  /** Removes expired entries first, then the oldest. */
  #makeRoom(server: string, subject: string, cost: number, nowMs: number): void {
    const { entriesPerSubjectMax, bytesMax } = this.#plan;
    const bucket = this.#servers.get(server)?.get(subject);
    if (bucket && bucket.size >= entriesPerSubjectMax) {
      for (const entry of bucket.values()) if (nowMs >= entry.expiresAtMs) this.#remove(entry);
      if (bucket.size >= entriesPerSubjectMax) this.#removeFirst(bucket.values());
    }
    if (this.#bytes + cost > bytesMax && nowMs >= this.#soonestExpiryMs) this.#removeExpired(nowMs);
    while (this.#bytes + cost > bytesMax) this.#removeFirst(this.#entries);
  }

  #removeExpired(nowMs: number): void {
    this.#soonestExpiryMs = Number.POSITIVE_INFINITY;
    for (const entry of this.#entries) {
      if (nowMs >= entry.expiresAtMs) this.#remove(entry);
      else this.#soonestExpiryMs = Math.min(this.#soonestExpiryMs, entry.expiresAtMs);
    }
  }

  #removeFirst(entries: Iterable<Entry<Value>>): void {
    for (const entry of entries) return this.#remove(entry);
  }

  #remove(entry: Entry<Value>): void {
    if (!this.#entries.delete(entry)) return;
    this.#bytes -= entry.cost;
    const subjects = this.#servers.get(entry.server);
    const bucket = subjects?.get(entry.subject);
    bucket?.delete(entry.key);
    if (bucket?.size === 0) subjects?.delete(entry.subject);
    if (subjects?.size === 0) this.#servers.delete(entry.server);
  }
}

function keyOf({ fingerprint, principal }: Question, hash: string, isPublic: boolean): string {
  return isPublic ? compositeKey(hash, fingerprint) : compositeKey(hash, fingerprint, principalKey(principal));
}

/**
 * Counts drops, so that an answer requested before a drop is not stored after it.
 * Invariant: after `advance`, no earlier epoch of the key is ever current again. Beyond `keysMax` keys all epochs advance
 * together; at worst, the answer to a request in flight is not stored.
 */
export class Epochs {
  readonly #keysMax: number;
  readonly #byKey = new Map<string, number>();
  #newest = 0;
  /** Epoch of every key that is not in the map. */
  #common = 0;

  constructor(keysMax: number) {
    this.#keysMax = keysMax;
  }

  /** The newest epoch of any key. Every later drop gets a higher one. */
  get now(): number {
    return this.#newest;
  }

  of(key: string): number {
    return this.#byKey.get(key) ?? this.#common;
  }

  advance(key: string): void {
    if (this.#byKey.size >= this.#keysMax && !this.#byKey.has(key)) this.advanceAll();
    this.#byKey.set(key, ++this.#newest);
  }

  advanceAll(): void {
    this.#byKey.clear();
    this.#common = ++this.#newest;
  }
}

/** `ttlMs` and `cacheScope` of a result. */
export interface CacheHint {
  readonly ttlMs: number;
  /** True: all principals share the answer. Any value except `"public"` means private. */
  readonly isPublic: boolean;
}

const hintKeys = ['ttlMs', 'cacheScope', 'resultType', 'isError'] as const;
/** Longer than any valid value of these members. */
const hintBytesMax = 64;

/**
 * Reads the hint from a result object that the scanner has validated. Undefined for an error, an incomplete result, or a
 * duplicate member.
 */
export function cacheHint(bytes: Buffer): CacheHint | undefined {
  const found: Partial<Record<(typeof hintKeys)[number], string>> = {};
  let isAmbiguous = false;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    for (const key of hintKeys) {
      if (!keyIs(bytes, keyStart, keyEnd, key)) continue;
      if (found[key] !== undefined) isAmbiguous = true;
      found[key] = bytes.toString('utf8', valueStart, Math.min(valueEnd, valueStart + hintBytesMax));
    }
  });
  if (after < 0 || isAmbiguous) return undefined;
  if (found.isError !== undefined && found.isError !== 'false') return undefined;
  if (found.resultType !== undefined && found.resultType !== '"complete"') return undefined;
  const ttlMs = Number(found.ttlMs);
  if (!Number.isInteger(ttlMs) || ttlMs <= 0) return undefined;
  return { ttlMs, isPublic: found.cacheScope === '"public"' };
}

/** False if the result has another `resultType`, such as `input_required`, or a duplicate one. */
export function isComplete(bytes: Buffer): boolean {
  const types: string[] = [];
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (keyIs(bytes, keyStart, keyEnd, 'resultType')) types.push(bytes.toString('utf8', valueStart, valueEnd));
  });
  return types.length === 0 || (types.length === 1 && types[0] === '"complete"');
}
