/**
 * Lists and resources that a server allowed to keep, each as the bytes it sent. Fresh from when they came in.
 * An answer belongs to one server and one question (a list's method, or a resource's URI), and to one principal in one role
 * unless the server said that it is public.
 * Not here: asking the server (host/), who may see which item (allowlist.ts; it is asked each time, kept or not).
 *
 * Invariants: what was asked for before a drop is never kept after it; nobody holds the bytes that are kept, only copies;
 * all bounds hold at all times.
 */
import type { Clock } from '../kernel/clock.js';
import type { CacheHint } from './cache-hint.js';
import { compositeKey, principalKey } from './composite-key.js';
import { Epochs } from './epochs.js';
import type { Principal } from './operation.js';

export type ListedMethod =
  | 'tools/list'
  | 'prompts/list'
  | 'resources/list'
  | 'resources/templates/list'
  | 'resources/read';

export interface ListQuestion {
  readonly server: string;
  readonly method: ListedMethod;
  /** Of a resource; empty for lists. */
  readonly uri: string;
  readonly principal: Principal;
}

/** One item of a list; a resource that was read is one item under its URI. */
export interface KeptItem {
  readonly key: string;
  readonly raw: Buffer;
}

export interface ListCachePlan {
  readonly readBytesMax: number;
  readonly listBytesMax: number;
  readonly bytesMax: number;
  readonly entriesPerServerMax: number;
  readonly ttlMsMax: number;
}

const MiB = 1024 * 1024;

export const defaultListCachePlan: ListCachePlan = {
  readBytesMax: MiB,
  listBytesMax: 16 * MiB,
  bytesMax: 64 * MiB,
  entriesPerServerMax: 1_024,
  ttlMsMax: 24 * 3_600_000,
};

interface Entry {
  readonly server: string;
  readonly method: ListedMethod;
  readonly uri: string;
  readonly key: string;
  readonly items: readonly KeptItem[];
  readonly cost: number;
  readonly expiresAtMs: number;
}

/** What an entry and an item cost besides their bytes; so the bound on bytes bounds their number too. */
const entryOverheadBytes = 512;
const itemOverheadBytes = 128;

/** Drops that are remembered one by one. */
const dropsMax = 4_096;

export class ListCache {
  readonly #clock: Clock;
  readonly #plan: ListCachePlan;
  /** Server, then key; the oldest insertion first. */
  readonly #servers = new Map<string, Map<string, Entry>>();
  readonly #entries = new Set<Entry>();
  #bytes = 0;
  /** Of servers as a whole and of single methods of theirs. */
  readonly #epochs = new Epochs(dropsMax);

  constructor(clock: Clock, plan: ListCachePlan = defaultListCachePlan) {
    this.#clock = clock;
    this.#plan = plan;
  }

  get entries(): number {
    return this.#entries.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Take it when the server is asked, and hand it back with the answer. */
  epochOf(server: string, method: ListedMethod): number {
    return Math.max(this.#epochs.of(compositeKey(server)), this.#epochs.of(compositeKey(server, method)));
  }

  /** Copies. The principal's own answer goes before the public one. */
  get(question: ListQuestion): KeptItem[] | undefined {
    const bucket = this.#servers.get(question.server);
    const entry = bucket && (this.#fresh(bucket, keyOf(question, false)) ?? this.#fresh(bucket, keyOf(question, true)));
    return entry && copyItems(entry.items);
  }

  /** Keeps copies; false when they are not kept. */
  put(question: ListQuestion, items: readonly KeptItem[], hint: CacheHint, epoch: number): boolean {
    const { server, method, uri } = question;
    const { ttlMsMax, readBytesMax, listBytesMax, bytesMax } = this.#plan;
    if (!(hint.ttlMs > 0) || epoch !== this.epochOf(server, method)) return false;
    const bytes = items.reduce((sum, { raw }) => sum + raw.length, 0);
    if (bytes > (method === 'resources/read' ? readBytesMax : listBytesMax)) return false;
    const cost = bytes + items.length * itemOverheadBytes + entryOverheadBytes + uri.length;
    if (cost > bytesMax) return false;
    const key = keyOf(question, hint.isPublic);
    const previous = this.#servers.get(server)?.get(key);
    if (previous) this.#remove(previous);
    const nowMs = this.#clock.nowMs();
    this.#makeRoom(server, cost, nowMs);
    const expiresAtMs = nowMs + Math.min(hint.ttlMs, ttlMsMax);
    const entry: Entry = { server, method, uri, key, items: copyItems(items), cost, expiresAtMs };
    const bucket = this.#servers.get(server) ?? new Map<string, Entry>();
    this.#servers.set(server, bucket.set(key, entry));
    this.#entries.add(entry);
    this.#bytes += cost;
    return true;
  }

  /** Forgets what is kept of a server, or of one of its methods, also what is still on its way. */
  drop(server: string, method?: ListedMethod): void {
    this.#removeWhere(server, (entry) => method === undefined || entry.method === method);
    this.#epochs.advance(method === undefined ? compositeKey(server) : compositeKey(server, method));
  }

  /** A resource changed: it is forgotten, and so are those that it is a part of. */
  dropRead(server: string, uri: string): void {
    this.#removeWhere(server, (entry) => entry.method === 'resources/read' && uri.startsWith(entry.uri));
    this.#epochs.advance(compositeKey(server, 'resources/read'));
  }

  dropAll(): void {
    for (const entry of this.#entries) this.#remove(entry);
    this.#epochs.advanceAll();
  }

  #removeWhere(server: string, matches: (entry: Entry) => boolean): void {
    for (const entry of this.#servers.get(server)?.values() ?? []) if (matches(entry)) this.#remove(entry);
  }

  #fresh(bucket: Map<string, Entry>, key: string): Entry | undefined {
    const entry = bucket.get(key);
    if (!entry || this.#clock.nowMs() < entry.expiresAtMs) return entry;
    this.#remove(entry);
    return undefined;
  }

  /** What has expired goes first, then what was put in first. */
  #makeRoom(server: string, cost: number, nowMs: number): void {
    const { entriesPerServerMax, bytesMax } = this.#plan;
    const bucket = this.#servers.get(server);
    if (bucket && bucket.size >= entriesPerServerMax) {
      this.#removeWhere(server, ({ expiresAtMs }) => nowMs >= expiresAtMs);
      if (bucket.size >= entriesPerServerMax) this.#removeFirst(bucket.values());
    }
    if (this.#bytes + cost <= bytesMax) return;
    for (const entry of this.#entries) if (nowMs >= entry.expiresAtMs) this.#remove(entry);
    while (this.#bytes + cost > bytesMax) this.#removeFirst(this.#entries);
  }

  #removeFirst(entries: Iterable<Entry>): void {
    for (const entry of entries) return this.#remove(entry);
  }

  #remove(entry: Entry): void {
    if (!this.#entries.delete(entry)) return;
    this.#bytes -= entry.cost;
    const bucket = this.#servers.get(entry.server);
    bucket?.delete(entry.key);
    if (bucket?.size === 0) this.#servers.delete(entry.server);
  }
}

/** In one piece of memory of their own: what came in may be views that hold all they were read with. */
export function copyItems(items: readonly KeptItem[]): KeptItem[] {
  const all = Buffer.allocUnsafeSlow(items.reduce((sum, { raw }) => sum + raw.length, 0));
  let at = 0;
  return items.map(({ key, raw }) => {
    const start = at;
    at += raw.copy(all, at);
    return { key, raw: all.subarray(start, at) };
  });
}

/** Within one server. */
function keyOf({ method, uri, principal }: ListQuestion, isPublic: boolean): string {
  return isPublic ? compositeKey(method, uri) : compositeKey(method, uri, principalKey(principal));
}
