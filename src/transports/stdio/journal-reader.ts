/**
 * A journal file → what it says, or why it says nothing.
 * Not here: writing journals (pid-journal.ts), acting on them (reaper.ts).
 * Invariant: "could not be read" is never taken for "says nothing": only a parsed journal has an owner to judge.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import type { JournalEntry, JournalHeader, JournalStart } from './pid-journal.js';
import { signallable } from './process-group.js';

interface Journal {
  readonly header: JournalHeader;
  readonly running: readonly JournalEntry[];
  /** Runs that were announced and of which nothing more is known. */
  readonly starting: readonly JournalStart[];
}

export type JournalReading =
  | { readonly kind: 'parsed'; readonly journal: Journal }
  /** Its writer made it a moment ago, or it has gone meanwhile. */
  | { readonly kind: 'empty' }
  /** Another user's: what it names is not for us to judge. */
  | { readonly kind: 'foreign' }
  /** `reason` is an errno, or `not_a_file`, `too_large`, `no_header`. */
  | { readonly kind: 'unreadable'; readonly reason: string };

/** Far above what a journal grows to; a file beyond it is not one of ours. */
const journalBytesMax = 1024 * 1024;

/** `ownUid` is undefined where files have no owner. */
export function readJournal(file: string, ownUid: number | undefined = process.getuid?.()): JournalReading {
  let fd: number | undefined;
  try {
    // A link is not followed, and a pipe somebody put here does not hold us up.
    fd = openSync(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
    const facts = fstatSync(fd);
    if (ownUid !== undefined && facts.uid !== ownUid) return { kind: 'foreign' };
    if (!facts.isFile()) return { kind: 'unreadable', reason: 'not_a_file' };
    if (facts.size > journalBytesMax) return { kind: 'unreadable', reason: 'too_large' };
    const text = readFileSync(fd, 'utf8');
    if (text === '') return { kind: 'empty' };
    const journal = parseJournal(text);
    return journal ? { kind: 'parsed', journal } : { kind: 'unreadable', reason: 'no_header' };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' ? { kind: 'empty' } : { kind: 'unreadable', reason: code ?? 'read' };
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** Undefined when there is no header to trust. Lines that are no entries are passed over. */
export function parseJournal(text: string): Journal | undefined {
  let header: JournalHeader | undefined;
  const running = new Map<number, JournalEntry>();
  const starting = new Map<number, JournalStart>();
  for (const line of text.split('\n')) {
    const parsed = parseLine(line);
    if (!header) {
      if (!isHeader(parsed.header)) return undefined;
      header = parsed.header;
    } else if (isStart(parsed.starting)) {
      const { run, server } = parsed.starting;
      starting.set(run, { run, server: typeof server === 'string' ? server : '' });
    } else if (isEntry(parsed.started)) {
      starting.delete(parsed.started.run);
      running.set(parsed.started.run, parsed.started);
    } else if (isRecord(parsed.ended) && isCount(parsed.ended.run)) {
      starting.delete(parsed.ended.run);
      running.delete(parsed.ended.run);
    }
  }
  return header && { header, running: [...running.values()], starting: [...starting.values()] };
}

function parseLine(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isHeader = (value: unknown): value is JournalHeader =>
  isRecord(value) &&
  typeof value.instanceId === 'string' &&
  value.instanceId.length >= 8 &&
  typeof value.bootId === 'string' &&
  typeof value.pidSpace === 'string' &&
  isCount(value.ownerPid) &&
  isCount(value.ownerStartTicks);

const isStart = (value: unknown): value is { readonly run: number; readonly server?: unknown } =>
  isRecord(value) && isCount(value.run);

const isEntry = (value: unknown): value is JournalEntry =>
  isRecord(value) && isCount(value.pid) && signallable(value.pid) && isCount(value.startTicks) && isCount(value.run);
