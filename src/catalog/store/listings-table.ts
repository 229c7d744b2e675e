/**
 * The newest listing of each server in state.db: one row set per server, one row per listed item.
 * Not here: changes of a listing (listings.ts).
 *
 * Invariants: at most `listingsMax` listings of at most `listingBytesMax`; the one written longest ago is deleted first. A
 * listing is valid only with the pins that it was compared with: after a crash a changed tool must not look approved.
 */
import type Database from 'libsql';
import { setBounded } from '../../kernel/bounded-map.js';
import { compositeKey, namesIn } from '../../policy/composite-key.js';
import { isListMethod, type ListedItem, type ListMethod } from '../../session/lists.js';
import type { KnownFacts, KnownList } from '../catalog-server.js';
import { soundBy, trustSound } from '../list-repair.js';
import { pinKey } from '../server-origin.js';
import { type PinsTable, pinsEntry } from './pins-table.js';
import { RowSets, type SetRow, type StoredRow } from './row-sets.js';
import { largeBytes, type WriteBehind } from './write-behind.js';

export const listingsMax = 1_024;
export const listingBytesMax = 8 * 1024 * 1024;

export interface Listing {
  readonly facts: KnownFacts | undefined;
  /** Lists as the server sent them, approved or not. */
  readonly lists: ReadonlyMap<ListMethod, KnownList>;
  /** Variables or headers with which it was read (server-origin.ts); undefined: unknown. */
  readonly inputs?: string | undefined;
}

/** `pins`: the pins could not be written, which was reported already. */
export type SaveFailure = 'pins' | { readonly error: unknown };

export interface ListingStore {
  load(server: string, origin: string): Listing;
  /** True: a valid listing is on disk or queued, or the listing is too large to be stored. */
  isStored(server: string, origin: string): boolean;
  /** Readers see the listing at once. `onFailed`: the listing was not written and may be saved again. */
  save(server: string, origin: string, listing: Listing, onFailed: (why: SaveFailure) => void): void;
}

export interface ListingsTable extends ListingStore {
  /** Drops the listing from memory. A queued listing is written first. */
  release(server: string): void;
}

export const emptyListing: Listing = { facts: undefined, lists: new Map() };

interface Head {
  readonly origin: string;
  readonly pins: string | undefined;
  readonly inputs?: string | undefined;
  readonly facts?: Omit<KnownFacts, 'capabilities' | 'serverInfo'> & {
    readonly capabilities: string;
    readonly serverInfo?: string | undefined;
  };
  /** `soundBy`: see list-repair.ts. */
  readonly lists: Readonly<Record<string, Omit<KnownList, 'items'> & { readonly soundBy?: number | undefined }>>;
}

interface QueuedListing {
  readonly origin: string;
  readonly listing: Listing;
}

export function listingsTable(database: Database.Database, pins: PinsTable, pending: WriteBehind): ListingsTable {
  const sets = new RowSets<Listing, Buffer>(database, {
    name: 'listing',
    oldestBy: 'written',
    setsMax: listingsMax,
    rowsOf,
    textOf: (raw) => raw.toString('utf8'),
    bytesOf: (raw) => raw.length,
    isSame: (a, b) => a.equals(b),
  });
  /** Servers whose tools alone are too large: another save would fail too. */
  const tooLarge = new Map<string, true>();
  const entryOf = (server: string) => compositeKey('listings', server);
  const queued = (server: string) => pending.get(entryOf(server)) as QueuedListing | undefined;
  const isValid = (head: Head, server: string, origin: string) =>
    head.origin === origin && head.pins === pins.generation(pinKey(server, origin));
  /** Returns false if the pins could not be written. */
  function* write(server: string, origin: string, listing: Listing): Generator<undefined, boolean> {
    const key = pinKey(server, origin);
    const arePinsWritten = pending.finish(pinsEntry(key));
    const fitting = fittingPart(listing);
    if (fitting) tooLarge.delete(server);
    else setBounded(tooLarge, server, true, listingsMax);
    // The stored listing is older than the one that cannot be stored, so it is wrong.
    if (!fitting || !arePinsWritten) sets.delete(server);
    else yield* sets.write(server, JSON.stringify(headOf(fitting, origin, pins.generation(key))), fitting, false);
    return arePinsWritten;
  }
  return {
    load(server, origin) {
      const waiting = queued(server);
      if (waiting) return waiting.origin === origin ? waiting.listing : emptyListing;
      const listing = sets.load(server, (rows, text) => {
        const head = JSON.parse(text) as Head;
        return isValid(head, server, origin) ? listingOf(head, rows) : undefined;
      });
      return listing ?? emptyListing;
    },
    isStored(server, origin) {
      const waiting = queued(server);
      if (waiting) return waiting.origin === origin;
      if (tooLarge.has(server)) return true;
      if (pending.get(pinsEntry(pinKey(server, origin))) !== undefined) return false;
      const head = sets.head(server);
      return head !== undefined && isValid(JSON.parse(head) as Head, server, origin);
    },
    save(server, origin, { facts, lists, inputs }, onFailed) {
      // A copy, because the caller keeps changing its map.
      const listing: Listing = { facts, lists: new Map(lists), inputs };
      const value: QueuedListing = { origin, listing };
      function* steps(): Generator<undefined, void> {
        if (!(yield* write(server, origin, listing))) onFailed('pins');
      }
      // A small listing waits for queued pins: writing both in one turn could take long.
      const mustWait = pending.get(pinsEntry(pinKey(server, origin))) !== undefined || bytesOf(listing) > largeBytes;
      pending.put(entryOf(server), { value, write: steps, onFailed: (error) => onFailed({ error }) }, mustWait);
    },
    release(server) {
      pending.settle(entryOf(server));
      sets.release(server);
      tooLarge.delete(server);
    },
  };
}

/** A server may list a name twice, so the row name contains a count. */
function rowsOf({ lists }: Listing): SetRow<Buffer>[] {
  const rows: SetRow<Buffer>[] = [];
  for (const [method, { items }] of lists) {
    const counts = new Map<string, number>();
    for (const { key, raw } of items) {
      const count = counts.get(key) ?? 0;
      counts.set(key, count + 1);
      rows.push({ name: compositeKey(method, key, String(count)), tag: method, content: raw });
    }
  }
  return rows;
}

function listingOf({ facts, lists, inputs }: Head, rows: readonly StoredRow[]): Listing {
  const itemsOf = new Map<string, ListedItem[]>(Object.keys(lists).map((method) => [method, []]));
  for (const { name, tag, text } of rows)
    itemsOf.get(tag)?.push({ key: namesIn(name)[1] ?? '', raw: Buffer.from(text) });
  const known = new Map<ListMethod, KnownList>();
  for (const [method, { soundBy, ...hints }] of Object.entries(lists)) {
    const items = itemsOf.get(method) ?? [];
    trustSound(items, soundBy);
    if (isListMethod(method)) known.set(method, { ...hints, items });
  }
  return { facts: facts && factsOf(facts), lists: known, inputs };
}

const factsOf = ({ capabilities, serverInfo, ...facts }: NonNullable<Head['facts']>): KnownFacts => ({
  ...facts,
  capabilities: Buffer.from(capabilities),
  serverInfo: serverInfo === undefined ? undefined : Buffer.from(serverInfo),
  instructions: facts.instructions,
});

/** Stores buffers as text: the JSON of the server must not change by a byte, for example in 64-bit integers. */
function headOf({ facts, lists, inputs }: Listing, origin: string, pins: string | undefined): Head {
  const texts = facts && {
    ...facts,
    capabilities: facts.capabilities.toString('utf8'),
    serverInfo: facts.serverInfo?.toString('utf8'),
  };
  const hints = [...lists].map(
    ([method, { items, ttlMs, isPublic }]) => [method, { ttlMs, isPublic, soundBy: soundBy(items) }] as const,
  );
  return { origin, pins, inputs, ...(texts === undefined ? {} : { facts: texts }), lists: Object.fromEntries(hints) };
}

/** The whole listing if it fits, otherwise only its tools. Undefined: the tools do not fit, and the rest alone is useless. */
function fittingPart(listing: Listing): Listing | undefined {
  const tools = new Map([...listing.lists].filter(([method]) => method === 'tools/list'));
  return [listing, { ...listing, lists: tools }].find((each) => bytesOf(each) <= listingBytesMax);
}

function bytesOf({ facts, lists }: Listing): number {
  let bytes = (facts?.instructions?.length ?? 0) + (facts?.capabilities.length ?? 0);
  for (const { items } of lists.values()) for (const { raw } of items) bytes += raw.length;
  return bytes;
}
