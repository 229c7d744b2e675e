/**
 * What each server said of itself and listed last, as a table, so that it can be described without being started: one row
 * per server.
 * Not here: when any of it is learnt (catalogue.ts, listings.ts).
 *
 * Invariant: at most `listingsMax` rows of at most `listingBytesMax` each; the one that was written longest ago goes first.
 * What is not there is read from the server again.
 */
import type Database from 'libsql';
import { setBounded } from '../../kernel/bounded-map.js';
import { compositeKey } from '../../policy/composite-key.js';
import { isListMethod, type ListedItem, type ListMethod } from '../../session/lists.js';
import type { KnownFacts, KnownList } from '../catalog-server.js';
import { pinKey } from '../server-origin.js';
import { pinsPlace } from './pins-table.js';
import { RowNames } from './row-names.js';
import { type LaterRow, type LaterWrites, largeBytes } from './write-behind.js';

export const listingsMax = 1_024;
export const listingBytesMax = 8 * 1024 * 1024;

export interface Listing {
  readonly facts: KnownFacts | undefined;
  /** As the server wrote them, whatever was agreed to. */
  readonly lists: ReadonlyMap<ListMethod, KnownList>;
}

/** Its pins could not be written, which was told; or it could not. */
export type SaveFailure = 'pins' | { readonly error: unknown };

export interface ListingStore {
  /** Of a server of this origin (server-origin.ts): with other variables it is still the same. */
  load(server: string, origin: string): Listing;
  /** Whether one is on disk, or waits to be, and pins that wait will not take it along; or it would not fit. */
  isKept(server: string, origin: string): boolean;
  /** A large one is written some turns later; it counts at once. `onUnkept`: it is not on disk, and may be saved again. */
  save(server: string, origin: string, manifest: Listing, onUnkept: (why: SaveFailure) => void): void;
}

/** The columns are called after what they held first: a hash of the whole definition, and the tools alone. */
export const listingsSchema =
  'CREATE TABLE IF NOT EXISTS manifests (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, tools TEXT NOT NULL);';

export const emptyListing: Listing = { facts: undefined, lists: new Map() };

export function listingsTable(database: Database.Database, later: LaterWrites): ListingStore {
  const read = database.prepare('SELECT tools FROM manifests WHERE server = ? AND fingerprint = ?');
  const has = database.prepare('SELECT 1 FROM manifests WHERE server = ? AND fingerprint = ?');
  const readNames = database.prepare('SELECT server FROM manifests');
  const names = new RowNames(() => (readNames.all() as { server: string }[]).map(({ server }) => server));
  // Replaced, never updated: so the order of `rowid` is the order of writing.
  const write = database.prepare('INSERT OR REPLACE INTO manifests VALUES (?, ?, ?)');
  const forget = database.prepare('DELETE FROM manifests WHERE server = ?');
  const trim = database.prepare(
    'DELETE FROM manifests WHERE rowid IN (SELECT rowid FROM manifests ORDER BY rowid DESC LIMIT -1 OFFSET ?)',
  );
  /** Of these not even the tools fit: to try again with each list would be in vain. */
  const unfit = new Map<string, true>();
  const placeOf = (server: string) => compositeKey('manifests', server);
  /** False: its pins could not be written. */
  const writeText = (server: string, origin: string, text: string): boolean => {
    // Never before the pins that judge it: after a kill in between, a changed tool would pass for the approved one.
    const isJudged = later.finish(pinsPlace(pinKey(server, origin)));
    names.changed();
    if (text === '') setBounded(unfit, server, true, listingsMax);
    else unfit.delete(server);
    if (text === '' || !isJudged) {
      // An older list must not stand for one that is too large to keep, or that nothing kept can judge.
      forget.run(server);
      return isJudged;
    }
    write.run(server, origin, text);
    trim.run(listingsMax);
    return true;
  };
  return {
    load(server, origin) {
      const waiting = later.get(placeOf(server)) as WaitingRow | undefined;
      if (waiting) return waiting.origin === origin ? waiting.manifest : emptyListing;
      if (!names.mayHave(server)) return emptyListing;
      const row = read.get(server, origin) as { tools: string } | undefined;
      return row ? parsed(JSON.parse(row.tools) as ToolsRow | Row) : emptyListing;
    },
    isKept(server, origin) {
      const waiting = later.get(placeOf(server)) as WaitingRow | undefined;
      if (waiting) return waiting.origin === origin;
      if (unfit.has(server)) return true;
      return later.get(pinsPlace(pinKey(server, origin))) === undefined && has.get(server, origin) !== undefined;
    },
    save(server, origin, { facts, lists }, onUnkept) {
      // As it is now: what is learnt later is another row.
      const manifest: Listing = { facts, lists: new Map(lists) };
      // A small one waits as well where its pins do: they would be written with it, all in one turn.
      const arePinsWritten = later.get(pinsPlace(pinKey(server, origin))) === undefined;
      const waiting: WaitingRow = { origin, manifest };
      const row: LaterRow = {
        row: waiting,
        text: () => textWithin(manifest),
        write: (text) => {
          if (!writeText(server, origin, text)) onUnkept('pins');
        },
        onFailed: (error) => onUnkept({ error }),
      };
      later.put(placeOf(server), row, itemsBytes(manifest) > largeBytes || !arePinsWritten);
    },
  };
}

interface WaitingRow {
  readonly origin: string;
  readonly manifest: Listing;
}

type ItemRow = readonly [key: string, raw: string];
/** What versions before 3 of the state wrote: the tools. */
type ToolsRow = readonly ItemRow[];

interface Row {
  readonly facts?: Omit<KnownFacts, 'capabilities' | 'serverInfo'> & {
    readonly capabilities: string;
    readonly serverInfo?: string;
  };
  readonly lists: Readonly<Record<string, { ttlMs: number; isPublic: boolean; items: readonly ItemRow[] }>>;
}

function parsed(row: ToolsRow | Row): Listing {
  if (isToolsRow(row)) {
    const tools: KnownList = { items: row.map(itemOf), ttlMs: 0, isPublic: false };
    return { facts: undefined, lists: new Map([['tools/list', tools]]) };
  }
  const lists = new Map<ListMethod, KnownList>();
  for (const [method, list] of Object.entries(row.lists))
    if (isListMethod(method)) lists.set(method, { ...list, items: list.items.map(itemOf) });
  return { facts: row.facts && factsOf(row.facts), lists };
}

const isToolsRow = (row: ToolsRow | Row): row is ToolsRow => Array.isArray(row);
const itemOf = ([key, raw]: ItemRow): ListedItem => ({ key, raw: Buffer.from(raw) });

function factsOf({ capabilities, serverInfo, ...facts }: NonNullable<Row['facts']>): KnownFacts {
  return {
    ...facts,
    capabilities: Buffer.from(capabilities),
    serverInfo: serverInfo === undefined ? undefined : Buffer.from(serverInfo),
    instructions: facts.instructions,
  };
}

/** Where not all fits, the tools: without them a server would be started only to be described. Empty: not even these fit. */
function textWithin(manifest: Listing): string {
  const tools = { ...manifest, lists: new Map([...manifest.lists].filter(([name]) => name === 'tools/list')) };
  for (const each of [manifest, tools]) {
    // Its text can only be longer: what is too large is told before one is made.
    if (itemsBytes(each) > listingBytesMax) continue;
    const text = textOf(each);
    if (Buffer.byteLength(text) <= listingBytesMax) return text;
  }
  return '';
}

function itemsBytes({ facts, lists }: Listing): number {
  let bytes = (facts?.instructions?.length ?? 0) + (facts?.capabilities.length ?? 0);
  for (const { items } of lists.values()) for (const { raw } of items) bytes += raw.length;
  return bytes;
}

/** Texts of texts: what the server wrote must come back to the byte, 64-bit integers and all. */
function textOf({ facts, lists }: Listing): string {
  const row = {
    facts: facts && {
      ...facts,
      capabilities: facts.capabilities.toString('utf8'),
      serverInfo: facts.serverInfo?.toString('utf8'),
    },
    lists: Object.fromEntries(
      [...lists].map(([method, { items, ttlMs, isPublic }]) => [
        method,
        { ttlMs, isPublic, items: items.map(({ key, raw }) => [key, raw.toString('utf8')] as const) },
      ]),
    ),
  };
  return JSON.stringify(row);
}
