/**
 * For processes that share a data directory: the addresses of sockets, and the start of a detached process.
 * Everything that depends on the system is here: Windows has named pipes and no sessions.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { HostError } from '../../kernel/errors.js';

/** A socket address has 108 bytes on Linux and 104 on macOS; one byte is the final NUL. */
const pathBytesMax = 103;

export function socketPath(dataDir: string, name: 'control.sock' | 'stdio.sock'): string {
  const file = path.join(path.resolve(dataDir), name);
  const bytes = Buffer.byteLength(file);
  if (bytes <= pathBytesMax) return file;
  throw new HostError('invalid_spec', `the path of the data directory ${dataDir} is too long for a socket in it`, {
    field: '--data-dir',
    reason: 'too_long',
    limit: pathBytesMax,
    actual: bytes,
    hint: 'choose a shorter path with --data-dir',
  });
}

/** The log of a host without a terminal. */
export const hostLogPath = (dataDir: string): string => path.join(dataDir, 'host.log');

/** The shell exits at once, so the command becomes a child of init: a client that kills a process tree does not find it. */
const shellProgram = '"$@" </dev/null >>"$0" 2>&1 & echo $!';

interface DetachedOptions {
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  /** File that gets the output. */
  readonly log: string;
}

/** Starts a process in a session of its own, without descriptors of this process. Resolves with its pid. */
export function spawnDetached({ command, cwd, env, log }: DetachedOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    const shell: ChildProcess = spawn('/bin/sh', ['-c', shellProgram, log, ...command], {
      ...{ cwd, env, detached: true },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    let text = '';
    shell.stdout?.on('data', (chunk) => (text += chunk));
    shell.once('error', reject);
    shell.once('close', () => {
      const pid = Number(text);
      if (pid > 0) resolve(pid);
      else reject(new Error('the shell started no process'));
    });
  });
}

/** False also for a process that has ended and was not reaped: PID 1 of a container may never reap it. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  return process.platform !== 'linux' || !/^[ZX]/.test(stateOf(pid));
}

/** The state of a process: the field after its name, which may contain parentheses. Empty if the state cannot be read. */
function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2);
  } catch {
    return '';
  }
}
