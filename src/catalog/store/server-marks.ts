/**
 * Marks of servers in state.db that outlive the host: `stopped` by an operator, `slow` to list its tools at a cold start.
 * Not here: the effect of a mark (host/servers.ts, startup-listing.ts).
 *
 * Invariants: at most `marksMax` marks; the oldest is deleted first. A mark that could not be written still applies in this process.
 */
import type Database from 'libsql';
import { setBounded } from '../../kernel/bounded-map.js';
import { compositeKey } from '../../policy/composite-key.js';
import { withoutSync } from './row-sets.js';

type ServerMark = 'stopped' | 'slow';

export interface ServerMarks {
  has(server: string, mark: ServerMark): boolean;
  set(server: string, mark: ServerMark, isSet: boolean): void;
}

const marksMax = 4_096;

export const marksSchema = `
  CREATE TABLE IF NOT EXISTS marks (server TEXT NOT NULL, mark TEXT NOT NULL, PRIMARY KEY (server, mark));`;

/** `write`: stores or deletes one mark. */
export function serverMarks(
  stored: Iterable<string> = [],
  write: (server: string, mark: string, isSet: boolean) => void = () => {},
): ServerMarks {
  const marks = new Map<string, true>([...stored].map((key) => [key, true]));
  return {
    has: (server, mark) => marks.size > 0 && marks.has(compositeKey(server, mark)),
    set(server, mark, isSet) {
      const key = compositeKey(server, mark);
      if (marks.has(key) === isSet) return;
      if (isSet) setBounded(marks, key, true, marksMax);
      else marks.delete(key);
      write(server, mark, isSet);
    },
  };
}

export function marksTable(database: Database.Database, onProblem: (error: unknown) => void): ServerMarks {
  const insert = database.prepare('INSERT OR REPLACE INTO marks VALUES (?, ?)');
  const remove = database.prepare('DELETE FROM marks WHERE server = ? AND mark = ?');
  const trim = database.prepare(
    `DELETE FROM marks WHERE rowid IN (SELECT rowid FROM marks ORDER BY rowid DESC LIMIT -1 OFFSET ${marksMax})`,
  );
  const rows = database.prepare('SELECT server, mark FROM marks ORDER BY rowid').all() as Record<string, string>[];
  return serverMarks(
    rows.map(({ server = '', mark = '' }) => compositeKey(server, mark)),
    (server, mark, isSet) => {
      try {
        withoutSync(database, () => {
          (isSet ? insert : remove).run(server, mark);
          if (isSet) trim.run();
        });
      } catch (error) {
        onProblem(error);
      }
    },
  );
}
