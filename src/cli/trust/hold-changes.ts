/**
 * An edit of a configuration that was found in the working folder: what of it counts before it is confirmed.
 * Pure. Not here: what a part is (config-parts.ts), reading the file and its confirmation (trusted-source.ts).
 *
 * Invariants: a command, an address or a listener that was not confirmed is not used; servers that run go on as they were; a part
 * that is removed from the file ends at once; a key that waits is not accepted, neither its old nor its new version.
 */
import { UnusableEntry } from '../../config/plain-data.js';
import { HostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { type ConfigPart, isTable, splitEntry } from './config-parts.js';

export interface Configuration {
  /** With every placeholder filled in. */
  readonly config: unknown;
  readonly parts: readonly ConfigPart[];
}

export interface Held extends Configuration {
  /** The parts that wait for a confirmation, as paths. */
  readonly waiting: readonly string[];
}

const shownChars = 100;

export const pathOf = (at: readonly string[]): string => at.map((name) => neutraliseLine(name, shownChars)).join('.');

export function holdChanges(applied: Configuration, next: Configuration, confirmed: ReadonlySet<string>): Held {
  const running = new Map(applied.parts.map((part) => [keyOf(part.at), part]));
  const waits = ({ at, digest }: ConfigPart) => !confirmed.has(digest) && running.get(keyOf(at))?.digest !== digest;
  const waiting = next.parts.filter(waits);
  const config = copyOf(next.config);
  for (const { at } of waiting) hold(config, at, applied.config);
  return {
    config,
    parts: next.parts.flatMap((part) => (waits(part) ? (running.get(keyOf(part.at)) ?? []) : [part])),
    waiting: waiting.map(({ at }) => pathOf(at)),
  };
}

const keyOf = (at: readonly string[]): string => JSON.stringify(at);

type Table = Record<string, unknown>;

function hold(config: Table, [table = '', name]: readonly string[], applied: unknown): void {
  const before = isTable(applied) ? applied[table] : undefined;
  if (name === undefined) {
    if (isTable(applied) && Object.hasOwn(applied, table)) config[table] = before;
    else delete config[table];
    return;
  }
  const entries = copyOf(config[table]);
  config[table] = entries;
  if (table === 'keys') delete entries[name];
  else
    entries[name] = heldEntry(
      name,
      entries[name],
      isTable(before) && Object.hasOwn(before, name) ? before[name] : undefined,
    );
}

/** The server as it runs, treated as the edit says. */
function heldEntry(name: string, next: unknown, before: unknown): unknown {
  if (before === undefined) return new UnusableEntry(unconfirmed(name));
  if (before instanceof UnusableEntry || next instanceof UnusableEntry || !isTable(before)) return before;
  return { ...(splitEntry(before).covered as Table), ...splitEntry(next).treatment };
}

const copyOf = (value: unknown): Table => Object.assign(Object.create(null), isTable(value) ? value : {}) as Table;

const unconfirmed = (name: string): HostError => {
  const field = pathOf(['mcpServers', name]);
  return new HostError(
    'invalid_spec',
    `${field}: is new in a configuration found in the working folder, and waits for hostler trust`,
    {
      server: name,
      field,
      reason: 'not_trusted',
      execution: 'not_executed',
      hint: 'run hostler trust in that folder to see what it would run and to confirm it',
    },
  );
};
