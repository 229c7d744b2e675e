/**
 * The tools each server listed last, as a table, so that a server can be described without being started: one row per server.
 * Not here: when a list is learnt (catalogue.ts).
 *
 * Invariant: at most `manifestsMax` rows of at most `manifestBytesMax` each; the one that was written longest ago goes first.
 * What is not there is read from the server again.
 */
import type Database from 'libsql';
import type { ListedItem } from '../session/lists.js';

export const manifestsMax = 1_024;
export const manifestBytesMax = 16 * 1024 * 1024;

export interface Manifests {
  /** What a server of this very definition listed last. */
  load(server: string, fingerprint: string): ListedItem[];
  save(server: string, fingerprint: string, tools: readonly ListedItem[]): void;
}

export const manifestsSchema =
  'CREATE TABLE IF NOT EXISTS manifests (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, tools TEXT NOT NULL);';

export function manifestsTable(database: Database.Database): Manifests {
  const read = database.prepare('SELECT tools FROM manifests WHERE server = ? AND fingerprint = ?');
  // Replaced, never updated: so the order of `rowid` is the order of writing.
  const write = database.prepare('INSERT OR REPLACE INTO manifests VALUES (?, ?, ?)');
  const forget = database.prepare('DELETE FROM manifests WHERE server = ?');
  const trim = database.prepare(
    'DELETE FROM manifests WHERE rowid IN (SELECT rowid FROM manifests ORDER BY rowid DESC LIMIT -1 OFFSET ?)',
  );
  return {
    load(server, fingerprint) {
      const row = read.get(server, fingerprint) as { tools: string } | undefined;
      const tools = row ? (JSON.parse(row.tools) as [key: string, raw: string][]) : [];
      return tools.map(([key, raw]) => ({ key, raw: Buffer.from(raw) }));
    },
    save(server, fingerprint, tools) {
      // Texts of texts: the definition itself must come back to the byte, 64-bit integers and all.
      const text = JSON.stringify(tools.map(({ key, raw }) => [key, raw.toString('utf8')]));
      if (Buffer.byteLength(text) > manifestBytesMax) {
        // An older list must not stand for one that is too large to keep.
        forget.run(server);
        return;
      }
      write.run(server, fingerprint, text);
      trim.run(manifestsMax);
    },
  };
}
