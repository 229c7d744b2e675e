/**
 * The table of processes as Linux shows it in /proc: who is in which group, since when, and under which mark.
 * Not here: signalling (process-group.ts).
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { RUN_MARKER } from '../environment.js';
import { cannotLook, isDead, type Look, type ProcessFacts, type ProcessTable } from './process-table.js';

export function parseStat(text: string): ProcessFacts | undefined {
  // The name stands in parentheses and may itself hold parentheses, blanks and newlines: only the last one counts.
  const nameEnd = text.lastIndexOf(')');
  const pid = Number.parseInt(text, 10);
  if (nameEnd < 0 || !(pid > 0)) return undefined;
  const fields = text.slice(nameEnd + 2).split(' ');
  const [state, ppid, pgid, session] = fields;
  const startTicks = Number(fields[19]);
  if (state === undefined || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid, ppid: Number(ppid), pgid: Number(pgid), session: Number(session), startTicks, state };
}

export function procTable(root = '/proc'): ProcessTable {
  /** Undefined when there is no such process. Throws when this process cannot open files. */
  const statOf = (pid: number): ProcessFacts | undefined => {
    try {
      return parseStat(readFileSync(`${root}/${pid}/stat`, 'utf8'));
    } catch (error) {
      if (cannotLook(error)) throw error;
      return undefined;
    }
  };
  const read = (pid: number): Look => {
    try {
      return statOf(pid) ?? 'gone';
    } catch {
      return 'unknown';
    }
  };
  return {
    read,
    startOf: (pid) => statOf(pid)?.startTicks ?? 0,
    startSlack: 0,
    seesMarks: true,
    living() {
      const found: ProcessFacts[] = [];
      for (const name of namesIn(root)) {
        const first = name.charCodeAt(0);
        if (first < 0x30 || first > 0x39) continue;
        const facts = read(Number(name));
        // A part of the table is no table: a missing process would count as gone.
        if (facts === 'unknown') return 'unknown';
        if (facts !== 'gone' && !isDead(facts.state)) found.push(facts);
      }
      return found.length === 0 ? 'unknown' : found;
    },
    mark(pid) {
      try {
        const prefix = `${RUN_MARKER}=`;
        const environment = readFileSync(`${root}/${pid}/environ`, 'latin1').split('\0');
        return environment.find((entry) => entry.startsWith(prefix))?.slice(prefix.length);
      } catch {
        return undefined;
      }
    },
    bootId: () => readText(`${root}/sys/kernel/random/boot_id`),
    pidSpace() {
      try {
        return readlinkSync(`${root}/self/ns/pid`);
      } catch {
        return '';
      }
    },
  };
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return '';
  }
}

function namesIn(root: string): string[] {
  try {
    return readdirSync(root);
  } catch {
    return [];
  }
}
