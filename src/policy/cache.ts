/**
 * Answers that a server allowed to keep. Fresh from when they came in, not from when they were asked for.
 * An answer belongs to one server as configured, one tool, one canonical form of the arguments, and to one principal in one
 * role unless the server said it is public.
 * Not here: what may be kept (cache-hint.ts), when to look (cache-stage.ts).
 *
 * Invariants: what was asked for before a server was dropped is never kept after; nobody holds the bytes that are kept, only
 * copies; all bounds hold at all times.
 */
import type { Clock } from '../kernel/clock.js';
import type { Era } from '../wire/channel.js';
import type { CacheHint } from './cache-hint.js';
import { compositeKey, principalKey } from './composite-key.js';
import { Epochs } from './epochs.js';
import type { Principal } from './operation.js';

export interface CachePlan {
  readonly entriesPerToolMax: number;
  readonly entryBytesMax: number;
  readonly bytesMax: number;
  readonly ttlMsMax: number;
}

const MiB = 1024 * 1024;

export const defaultCachePlan: CachePlan = {
  entriesPerToolMax: 64,
  entryBytesMax: MiB,
  bytesMax: 64 * MiB,
  ttlMsMax: 24 * 3_600_000,
};

/** Whose answer to which question. */
export interface Question {
  readonly server: string;
  readonly tool: string;
  /** Of the server's configuration and of whatever else makes old answers wrong. */
  readonly fingerprint: string;
  readonly principal: Principal;
  /** Costs more than all else here, so it is asked for only when needed. Undefined: the arguments have no canonical form. */
  argumentsHash(): string | undefined;
}

export interface CacheStats {
  readonly hits: number;
  readonly misses: number;
  readonly entries: number;
  readonly bytes: number;
}

/** An answer and in whose words it is written. */
export interface KeptAnswer {
  readonly bytes: Buffer;
  readonly era: Era;
}

interface Entry extends KeptAnswer {
  readonly server: string;
  readonly tool: string;
  readonly key: string;
  readonly expiresAtMs: number;
}

/** What an entry costs besides its bytes; so the bound on bytes bounds their number too. */
const entryOverheadBytes = 512;

/** Servers whose dropping is remembered one by one. */
const droppedServersMax = 1_000;

export class ResponseCache {
  readonly #clock: Clock;
  readonly #plan: CachePlan;
  readonly #servers = new Map<string, Map<string, Map<string, Entry>>>();
  /** All entries, the oldest insertion first. */
  readonly #entries = new Set<Entry>();
  #bytes = 0;
  /** No entry expires before this. */
  #soonestExpiryMs = Number.POSITIVE_INFINITY;
  #hits = 0;
  #misses = 0;
  readonly #epochs = new Epochs(droppedServersMax);

  constructor(clock: Clock, plan: CachePlan = defaultCachePlan) {
    this.#clock = clock;
    this.#plan = plan;
  }

  stats(): CacheStats {
    return { hits: this.#hits, misses: this.#misses, entries: this.#entries.size, bytes: this.#bytes };
  }

  entriesOf(server: string, tool?: string): number {
    if (tool !== undefined) return this.#servers.get(server)?.get(tool)?.size ?? 0;
    let count = 0;
    for (const bucket of this.#servers.get(server)?.values() ?? []) count += bucket.size;
    return count;
  }

  /** Take it when a call is sent, and hand it back with the answer. */
  get epoch(): number {
    return this.#epochs.now;
  }

  /** Another one when the server was dropped in between. */
  epochOf(server: string): number {
    return this.#epochs.of(server);
  }

  /** True: nothing of the tool is kept, and that was a miss. */
  missesTool(server: string, tool: string): boolean {
    if (this.#servers.size > 0 && this.#servers.get(server)?.has(tool)) return false;
    this.#misses++;
    return true;
  }

  /** A copy. The principal's own answer goes before the public one. */
  get(question: Question): KeptAnswer | undefined {
    const bucket = this.#servers.get(question.server)?.get(question.tool);
    const hash = bucket && question.argumentsHash();
    const entry =
      bucket && hash !== undefined
        ? (this.#fresh(bucket, keyOf(question, hash, false)) ?? this.#fresh(bucket, keyOf(question, hash, true)))
        : undefined;
    if (!entry) {
      this.#misses++;
      return undefined;
    }
    this.#hits++;
    return { bytes: Buffer.from(entry.bytes), era: entry.era };
  }

  /** Keeps a copy; false when it is not kept. `epoch` is from when the call was sent. */
  put(question: Question, { bytes, era }: KeptAnswer, hint: CacheHint, epoch: number): boolean {
    const { server, tool } = question;
    if (!this.#epochs.isAsAt(server, epoch) || bytes.length > this.#plan.entryBytesMax) return false;
    if (bytes.length + entryOverheadBytes > this.#plan.bytesMax) return false;
    const hash = question.argumentsHash();
    if (hash === undefined) return false;
    const key = keyOf(question, hash, hint.isPublic);
    const nowMs = this.#clock.nowMs();
    const previous = this.#servers.get(server)?.get(tool)?.get(key);
    if (previous) this.#remove(previous);
    this.#makeRoom(server, tool, bytes.length + entryOverheadBytes, nowMs);

    // Of its own memory: what came in is a view that would hold all it was read with.
    const kept = Buffer.allocUnsafeSlow(bytes.length);
    bytes.copy(kept);
    const expiresAtMs = nowMs + Math.min(hint.ttlMs, this.#plan.ttlMsMax);
    const entry: Entry = { server, tool, key, bytes: kept, era, expiresAtMs };
    const tools = this.#servers.get(server) ?? new Map<string, Map<string, Entry>>();
    const bucket = tools.get(tool) ?? new Map<string, Entry>();
    this.#servers.set(server, tools.set(tool, bucket.set(key, entry)));
    this.#entries.add(entry);
    this.#bytes += costOf(entry);
    this.#soonestExpiryMs = Math.min(this.#soonestExpiryMs, expiresAtMs);
    return true;
  }

  /** Forgets all answers of the server, also those that are still on their way. */
  drop(server: string): void {
    for (const bucket of this.#servers.get(server)?.values() ?? [])
      for (const entry of bucket.values()) this.#remove(entry);
    this.#epochs.advance(server);
  }

  #fresh(bucket: Map<string, Entry>, key: string): Entry | undefined {
    const entry = bucket.get(key);
    if (!entry || this.#clock.nowMs() < entry.expiresAtMs) return entry;
    this.#remove(entry);
    return undefined;
  }

  /** What has expired goes first, then what was put in first. */
  #makeRoom(server: string, tool: string, cost: number, nowMs: number): void {
    const bucket = this.#servers.get(server)?.get(tool);
    if (bucket && bucket.size >= this.#plan.entriesPerToolMax) {
      for (const entry of bucket.values()) if (nowMs >= entry.expiresAtMs) this.#remove(entry);
      if (bucket.size >= this.#plan.entriesPerToolMax) this.#removeFirst(bucket.values());
    }
    if (this.#bytes + cost > this.#plan.bytesMax && nowMs >= this.#soonestExpiryMs) this.#removeExpired(nowMs);
    while (this.#bytes + cost > this.#plan.bytesMax) this.#removeFirst(this.#entries);
  }

  #removeExpired(nowMs: number): void {
    this.#soonestExpiryMs = Number.POSITIVE_INFINITY;
    for (const entry of this.#entries) {
      if (nowMs >= entry.expiresAtMs) this.#remove(entry);
      else this.#soonestExpiryMs = Math.min(this.#soonestExpiryMs, entry.expiresAtMs);
    }
  }

  #removeFirst(entries: Iterable<Entry>): void {
    for (const entry of entries) return this.#remove(entry);
  }

  #remove(entry: Entry): void {
    if (!this.#entries.delete(entry)) return;
    this.#bytes -= costOf(entry);
    const tools = this.#servers.get(entry.server);
    const bucket = tools?.get(entry.tool);
    bucket?.delete(entry.key);
    if (bucket?.size === 0) tools?.delete(entry.tool);
    if (tools?.size === 0) this.#servers.delete(entry.server);
  }
}

const costOf = ({ bytes }: Entry): number => bytes.length + entryOverheadBytes;

/** Within one server and tool. */
function keyOf({ fingerprint, principal }: Question, hash: string, isPublic: boolean): string {
  return isPublic ? compositeKey(hash, fingerprint) : compositeKey(hash, fingerprint, principalKey(principal));
}
