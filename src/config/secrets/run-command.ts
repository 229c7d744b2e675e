/**
 * Runs the command of `${exec:NAME}` and returns its output: no shell, no input, bounded in time and size.
 * Not here: when it runs (secret-values.ts).
 * Invariants: stderr is never read. After the result no process of the command's group is left. After a timeout, too much output, or
 * an exit with the pipe still open, processes that left the group and kept the environment are ended too, on Linux only. In all other
 * cases such a process continues, for example an agent that keeps a passphrase.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '../../kernel/clock.js';

export type CommandResult = { readonly text: string } | { readonly why: string };

export interface CommandRun {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly clock: Clock;
}

const runMs = 10_000;
const outputBytesMax = 64 * 1024;
/** After the exit of the program, its last output may still be in the pipe. */
const drainMs = 250;
/** Variable that marks the command and all processes that it starts. */
const markName = 'HOSTLER_COMMAND';
/** Maximum number of searches for marked processes. One of them may fork while the others are ended. */
const looksMax = 10;

export function runCommand({ argv: [program = '', ...args], env, clock }: CommandRun): Promise<CommandResult> {
  return new Promise((resolve) => {
    let child: ChildProcess;
    const mark = randomUUID();
    try {
      // A group of its own: a timeout also ends the processes that the program started.
      child = spawn(program, args, {
        env: { ...env, [markName]: mark },
        stdio: ['ignore', 'pipe', 'ignore'],
        detached: true,
      });
    } catch (error) {
      resolve({ why: notStarted(error) });
      return;
    }
    const chunks: Buffer[] = [];
    let bytes = 0;
    let isOver = false;
    const end = (result: CommandResult, isStuck = false) => {
      if (isOver) return;
      isOver = true;
      for (const cancel of timers) cancel();
      child.stdout?.destroy();
      killGroup(child);
      if (isStuck) void killMarked(mark).finally(() => resolve(result));
      else resolve(result);
    };
    const timers = [clock.at(clock.nowMs() + runMs, () => end({ why: 'took longer than 10 s' }, true))];
    const succeed = (isStuck: boolean) => end(textOf(Buffer.concat(chunks)), isStuck);
    child.once('error', (error) => end({ why: notStarted(error) }));
    child.stdout?.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > outputBytesMax) end({ why: 'printed more than 64 KiB' }, true);
      else chunks.push(chunk);
    });
    child.once('exit', (code, signal) => {
      if (code !== 0) end({ why: code === null ? `was ended by ${signal}` : `ended with exit code ${code}` });
      // A process in the background may hold the pipe open.
      else timers.push(clock.at(clock.nowMs() + drainMs, () => succeed(true)));
    });
    child.once('close', (code) => {
      if (code === 0) succeed(false);
    });
  });
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The group is empty.
  }
}

/** Ends the processes that left the group. The reads are asynchronous, so the host serves requests meanwhile. */
async function killMarked(mark: string): Promise<void> {
  if (process.platform !== 'linux') return;
  const text = `${markName}=${mark}`;
  for (let looks = 0; looks < looksMax; looks++) {
    const names = await readdir('/proc').catch(() => []);
    let found = 0;
    for (const pid of names) {
      if (!/^\d+$/.test(pid) || !(await isMarked(pid, text))) continue;
      found++;
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch {
        // The process has ended.
      }
    }
    if (found === 0) return;
  }
}

async function isMarked(pid: string, text: string): Promise<boolean> {
  try {
    return (await readFile(`/proc/${pid}/environ`, 'latin1')).split('\0').includes(text);
  } catch {
    // The process has ended, or belongs to another user.
    return false;
  }
}

function textOf(output: Buffer): CommandResult {
  const text = output.toString('utf8').replace(/\r?\n$/, '');
  if (text === '') return { why: 'printed nothing' };
  if (text.includes('\0')) return { why: 'printed a NUL' };
  if (text.includes('\ufffd')) return { why: 'printed bytes that are not UTF-8' };
  return { text };
}

const notStarted = (error: unknown): string =>
  `could not be started (${(error as NodeJS.ErrnoException).code ?? 'unknown error'})`;
