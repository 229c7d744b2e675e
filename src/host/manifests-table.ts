/**
 * What each server said of itself and listed last, as a table, so that it can be described without being started: one row
 * per server.
 * Not here: when any of it is learnt (catalogue.ts, known-servers.ts).
 *
 * Invariant: at most `manifestsMax` rows of at most `manifestBytesMax` each; the one that was written longest ago goes first.
 * What is not there is read from the server again.
 */
import type Database from 'libsql';
import { isListMethod, type ListedItem, type ListMethod } from '../session/lists.js';
import type { KnownFacts, KnownList } from './host-interface.js';
import { RowNames } from './row-names.js';

export const manifestsMax = 1_024;
export const manifestBytesMax = 16 * 1024 * 1024;

export interface Manifest {
  readonly facts: KnownFacts | undefined;
  /** As the server wrote them, whatever was agreed to. */
  readonly lists: ReadonlyMap<ListMethod, KnownList>;
}

export interface Manifests {
  /** Of a server of this origin (pin-origin.ts): with other variables it is still the same. */
  load(server: string, origin: string): Manifest;
  save(server: string, origin: string, manifest: Manifest): void;
}

/** The columns are called after what they held first: a hash of the whole definition, and the tools alone. */
export const manifestsSchema =
  'CREATE TABLE IF NOT EXISTS manifests (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, tools TEXT NOT NULL);';

export const noManifest: Manifest = { facts: undefined, lists: new Map() };

export function manifestsTable(database: Database.Database): Manifests {
  const read = database.prepare('SELECT tools FROM manifests WHERE server = ? AND fingerprint = ?');
  const readNames = database.prepare('SELECT server FROM manifests');
  const names = new RowNames(() => (readNames.all() as { server: string }[]).map(({ server }) => server));
  // Replaced, never updated: so the order of `rowid` is the order of writing.
  const write = database.prepare('INSERT OR REPLACE INTO manifests VALUES (?, ?, ?)');
  const forget = database.prepare('DELETE FROM manifests WHERE server = ?');
  const trim = database.prepare(
    'DELETE FROM manifests WHERE rowid IN (SELECT rowid FROM manifests ORDER BY rowid DESC LIMIT -1 OFFSET ?)',
  );
  return {
    load(server, origin) {
      if (!names.mayHave(server)) return noManifest;
      const row = read.get(server, origin) as { tools: string } | undefined;
      return row ? parsed(JSON.parse(row.tools) as ToolsRow | Row) : noManifest;
    },
    save(server, origin, manifest) {
      names.changed();
      const text = textWithin(manifest);
      if (text === undefined) {
        // An older list must not stand for one that is too large to keep.
        forget.run(server);
        return;
      }
      write.run(server, origin, text);
      trim.run(manifestsMax);
    },
  };
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

function parsed(row: ToolsRow | Row): Manifest {
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

/** Where not all fits, the tools: without them a server would be started only to be described. */
function textWithin(manifest: Manifest): string | undefined {
  const all = textOf(manifest);
  if (Buffer.byteLength(all) <= manifestBytesMax) return all;
  const tools = textOf({ ...manifest, lists: new Map([...manifest.lists].filter(([name]) => name === 'tools/list')) });
  return Buffer.byteLength(tools) <= manifestBytesMax ? tools : undefined;
}

/** Texts of texts: what the server wrote must come back to the byte, 64-bit integers and all. */
function textOf({ facts, lists }: Manifest): string {
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
