/**
 * Takes over the pins of a state.db before version 5, where all pins of a server were one row of the table `pins`.
 * Not here: the current tables (pins-table.ts).
 *
 * Invariants: one transaction takes over all rows or none. A row that cannot be read is reported and stays in
 * `unreadable_pins`. A server that already has pins in the current tables keeps those.
 */
import type Database from 'libsql';
import * as z from 'zod/mini';
import { HostError } from '../../kernel/errors.js';
import { namesIn } from '../../policy/composite-key.js';
import type { PinRecord } from '../../policy/pin-records.js';
import type { PinsTable } from './pins-table.js';

const version = z.object({
  hash: z.string(),
  bodyHash: z.string(),
  raw: z.optional(z.string()),
  at: z.string(),
});
const records = z.array(
  z.object({
    name: z.string(),
    approved: z.optional(version),
    pending: z.optional(version),
    firstHash: z.optional(z.string()),
    renamedFrom: z.optional(z.string()),
    isAmbiguous: z.boolean(),
    isListed: z.boolean(),
  }),
);

export function adoptOldPins(
  database: Database.Database,
  pins: Pick<PinsTable, 'adopt'>,
  onProblem: (error: unknown) => void,
): void {
  const hasTable = () => database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'pins'").get() !== undefined;
  if (!hasTable()) return;
  const problems: HostError[] = [];
  const adoptAll = database.transaction(() => {
    // Another process may have taken them over while this one waited for the lock.
    if (!hasTable()) return;
    const adopted = database.prepare('DELETE FROM pins WHERE server = ?');
    const rows = database.prepare('SELECT server, records FROM pins').all() as { server: string; records: string }[];
    for (const { server, records: text } of rows) {
      const read = parse(text);
      if ('error' in read) problems.push(unreadable(server, read.error));
      else {
        pins.adopt(server, read.records);
        adopted.run(server);
      }
    }
    database.exec(problems.length === 0 ? 'DROP TABLE pins' : 'ALTER TABLE pins RENAME TO unreadable_pins');
  });
  adoptAll.immediate();
  for (const problem of problems) onProblem(problem);
}

function parse(text: string): { readonly records: readonly PinRecord[] } | { readonly error: unknown } {
  try {
    return { records: records.parse(JSON.parse(text)) as PinRecord[] };
  } catch (error) {
    return { error };
  }
}

function unreadable(key: string, cause: unknown): HostError {
  const server = namesIn(key)[0] ?? key;
  return new HostError('invalid_spec', `the old pins of server '${server}' could not be read and were set aside`, {
    field: 'stateDir',
    reason: 'unusable_state',
    server,
    hint: `tools of server '${server}' count as new; the old row is in the table unreadable_pins of state.db`,
    cause,
  });
}
