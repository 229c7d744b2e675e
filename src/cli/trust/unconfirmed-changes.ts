/**
 * Withholds the unconfirmed changes of an edited configuration that was found in the working folder. Pure.
 * Not here: parts (config-parts.ts), reading the file and its confirmation (trusted-source.ts).
 * Invariants: an unconfirmed command, address or listener is not used. Running servers continue as before. A part removed from
 * the file ends at once. Neither the old nor the new version of a changed key is accepted until the change is confirmed.
 */
import { UnusableEntry } from '../../config/copy-config.js';
import { HostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { type ConfigPart, isTable, splitEntry } from './config-parts.js';

export interface Configuration {
  /** Configuration with all placeholders filled in. */
  readonly config: unknown;
  readonly parts: readonly ConfigPart[];
}

export interface UsableChanges extends Configuration {
  /** Paths of the parts that wait for a confirmation. */
  readonly waiting: readonly string[];
}

const shownChars = 100;

export const pathOf = (at: readonly string[]): string => at.map((name) => neutraliseLine(name, shownChars)).join('.');

export function withholdUnconfirmed(
  applied: Configuration,
  next: Configuration,
  confirmed: ReadonlySet<string>,
): UsableChanges {
  const running = new Map(applied.parts.map((part) => [keyOf(part.at), part]));
  const waits = ({ at, digest }: ConfigPart) => !confirmed.has(digest) && running.get(keyOf(at))?.digest !== digest;
  const waiting = next.parts.filter(waits);
  const config = copyOf(next.config);
  for (const { at } of waiting) withhold(config, at, applied.config);
  return {
    config,
    parts: next.parts.flatMap((part) => (waits(part) ? (running.get(keyOf(part.at)) ?? []) : [part])),
    waiting: waiting.map(({ at }) => pathOf(at)),
  };
}

const keyOf = (at: readonly string[]): string => JSON.stringify(at);

type Table = Record<string, unknown>;

function withhold(config: Table, [table = '', name]: readonly string[], applied: unknown): void {
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
    entries[name] = previousEntry(
      name,
      entries[name],
      isTable(before) && Object.hasOwn(before, name) ? before[name] : undefined,
    );
}

/** The running entry, with the edited settings that need no confirmation. */
function previousEntry(name: string, next: unknown, before: unknown): unknown {
  if (before === undefined) return new UnusableEntry(unconfirmed(name));
  if (before instanceof UnusableEntry || next instanceof UnusableEntry || !isTable(before)) return before;
  return { ...(splitEntry(before).covered as Table), ...splitEntry(next).treatment };
}

const copyOf = (value: unknown): Table => Object.assign(Object.create(null), isTable(value) ? value : {}) as Table;

const unconfirmed = (name: string): HostError => {
  const field = pathOf(['mcpServers', name]);
  return new HostError(
    'invalid_spec',
    `${field}: is new in a configuration found in the working folder and waits for hostler trust`,
    {
      server: name,
      field,
      reason: 'not_trusted',
      execution: 'not_executed',
      hint: 'run hostler trust in that folder to review and confirm it',
    },
  );
};
