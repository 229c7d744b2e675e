/**
 * A log of calls in a separate process that is killed or whose disk fails, and the lines that it printed before. Not here: the code
 * of that process (log-driver.mjs).
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const driver = fileURLToPath(new URL('./log-driver.mjs', import.meta.url));

export interface LogProcess {
  readonly child: ChildProcess;
  /** Resolves when `lines` lines were printed, or when the process ends. */
  reached(lines: number): Promise<void>;
  lines(): readonly string[];
  /** Resolves with all its lines when the process has ended. */
  readonly ended: Promise<Said>;
}

export interface Said {
  readonly lines: readonly string[];
  /** The rest of each line that begins with this letter. */
  of(letter: string): string[];
  readonly exitCode: number | null;
  readonly stderr: string;
}

export function startLog(
  folder: string,
  args: readonly (string | number)[],
  before: readonly string[] = [],
): LogProcess {
  const [command, ...rest] = [...before, process.execPath, driver, folder, ...args.map(String)] as [
    string,
    ...string[],
  ];
  const child = spawn(command, rest, { stdio: ['pipe', 'pipe', 'pipe'] });
  let [text, stderr] = ['', ''];
  const looks = new Set<() => void>();
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    for (const look of looks) look();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  // An incomplete last line, cut off by a kill, does not count.
  const lines = () => text.split('\n').slice(0, -1);
  const ended = new Promise<Said>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (exitCode) => {
      const all = lines();
      const of = (letter: string) =>
        all.filter((line) => line.startsWith(`${letter} `)).map((line) => line.slice(letter.length + 1));
      resolve({ lines: all, of, exitCode, stderr });
      for (const look of looks) look();
    });
  });
  const reached = (count: number) =>
    new Promise<void>((resolve) => {
      const look = () => {
        if (lines().length < count && child.exitCode === null && child.signalCode === null) return;
        looks.delete(look);
        resolve();
      };
      looks.add(look);
      look();
    });
  return { child, ended, reached, lines };
}

/** Runs a log process until it ends. */
export const runLog = (folder: string, args: readonly (string | number)[], before?: readonly string[]): Promise<Said> =>
  startLog(folder, args, before).ended;

/** State of each key as a new process finds it; undefined: there is no row. */
export async function statesOf(folder: string, keys: Iterable<string>): Promise<Map<string, string | undefined>> {
  const file = `${folder}.keys`;
  writeFileSync(file, [...keys].join('\n'));
  try {
    const said = await runLog(folder, ['read', file]);
    if (said.lines.at(-1) !== 'closed')
      throw new Error(`the log does not open: ${said.lines.join('; ')} ${said.stderr}`);
    const rows = said.of('M').map((line) => line.split(' ') as [string, string]);
    return new Map([...rows, ...said.of('N').map((key) => [key, undefined] as const)]);
  } finally {
    rmSync(file, { force: true });
  }
}

/** Makes a temporary folder, with a function that removes it. */
export function makeFolder(name: string): { folder: string; remove(): void } {
  const folder = mkdtempSync(path.join(os.tmpdir(), `hostler-log-${name}-`));
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
