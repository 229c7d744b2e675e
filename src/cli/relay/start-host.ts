/**
 * Finds the host of a data directory, or starts one.
 * Invariants: only the relay that holds `start.lock` starts a host. The control socket of the host is the real lock, so a
 * lock file that is removed too early costs a useless start and nothing else. A lock file of a dead process is removed.
 */
import { chmodSync, closeSync, existsSync, openSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { type Clock, sleep } from '../../kernel/clock.js';
import { RUN_MARKER } from '../../transports/environment.js';
import { fetchRunningFacts } from '../control/control-client.js';
import { controlPath, type RunningFacts } from '../control/control-protocol.js';
import { hostLogPath, isAlive, spawnDetached } from '../process/host-address.js';
import { RELAYED_VARIABLE } from '../up/up-options.js';
import { LogTail } from './log-tail.js';
import { isRefusedBySystem, type Opened } from './open-link.js';

export interface HostStart {
  readonly dataDir: string;
  /** Real path of the configuration. */
  readonly config: string;
  /** Path of the configuration as the host names it in errors. */
  readonly givenConfig: string;
  /** Command line of the host. */
  readonly command: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly open: () => Promise<Opened>;
  /** Called before a host is started: from now on `onLine` reports what it logs. */
  readonly onLaunch: () => void;
  /** Called for each line that the started host logs until it is ready. */
  readonly onLine: (line: string) => void;
}

const pollMs = 15;
const otherPollMs = 60;
const startMaxMs = 30_000;
const lockMaxMs = 30_000;

const lockPath = (dataDir: string): string => path.join(dataDir, 'start.lock');

export async function joinHost(start: HostStart): Promise<Opened> {
  const { dataDir, config, clock, signal, open } = start;
  const untilMs = clock.nowMs() + startMaxMs;
  let child: StartedHost | undefined;
  let hasLock = false;
  let waitsFor = 'the host to start';
  try {
    for (;;) {
      const opened = await open();
      if (opened.kind !== 'absent' && opened.kind !== 'stopping') return opened;
      if (signal.aborted) return { kind: 'failed', reason: 'the relay was stopped', isFinal: true };
      if (clock.nowMs() > untilMs) return { kind: 'failed', reason: `waited ${startMaxMs / 1_000} s for ${waitsFor}` };
      child?.tail.read();
      if (!child || !isAlive(child.pid)) {
        const other = await fetchRunningFacts(controlPath(dataDir), clock);
        if (other) waitsFor = waitText(dataDir, other);
        else if (child) return failure(start, child);
        else if (!existsSync(config)) return { kind: 'failed', reason: `${config} does not exist`, isFinal: true };
        else {
          hasLock ||= takeLock(lockPath(dataDir), clock);
          if (hasLock) child = await launch(start);
        }
      }
      await sleep(clock, child ? pollMs : otherPollMs, signal);
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (isRefusedBySystem(code)) return { kind: 'unreachable', code };
    return { kind: 'failed', reason: error instanceof Error ? error.message : String(error) };
  } finally {
    child?.tail.read();
    child?.tail.close();
    if (hasLock) rmSync(lockPath(dataDir), { force: true });
  }
}

function waitText(dataDir: string, { pid, isStopping }: Partial<RunningFacts>): string {
  const other = `the Hostler with pid ${pid ?? 'unknown'}`;
  return isStopping
    ? `${other} to end`
    : `${other} to open its socket; restart it with: hostler restart --data-dir ${dataDir}`;
}

interface StartedHost {
  readonly pid: number;
  readonly tail: LogTail;
  readonly lines: string[];
}

async function launch({ dataDir, config, command, env, onLaunch, onLine }: HostStart): Promise<StartedHost> {
  onLaunch();
  const log = hostLogPath(dataDir);
  closeSync(openSync(log, 'a', 0o600));
  chmodSync(log, 0o600);
  const lines: string[] = [];
  const tail = new LogTail(log, (line) => {
    if (lines.push(line) > 100) lines.shift();
    onLine(line);
  });
  // A host below another Hostler must not count as one of its servers: it outlives them.
  const environment = { ...env, [RELAYED_VARIABLE]: '1', [RUN_MARKER]: undefined };
  const pid = await spawnDetached({ command, cwd: path.dirname(config), env: environment, log });
  return { pid, tail, lines };
}

/** The reason is the error that the host printed. */
async function failure({ dataDir, givenConfig }: HostStart, { lines, tail }: StartedHost): Promise<Opened> {
  tail.read();
  const code = await listenError(dataDir);
  if (isRefusedBySystem(code)) return { kind: 'unreachable', code };
  const error = lines.findLast((line) => line.startsWith('hostler: ')) ?? lines.at(-1);
  const reason = error?.replace(/^hostler: /, '') ?? 'Hostler ended while it started';
  // Until the file is edited, the next start fails in the same way.
  return { kind: 'failed', reason, isFinal: reason.startsWith(givenConfig) };
}

/** Tries to create a socket in the data directory. Resolves with the error code, or undefined if there is none. */
function listenError(dataDir: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    const file = path.join(dataDir, `p${process.pid}`);
    server.once('error', ({ code = 'unknown' }: NodeJS.ErrnoException) => resolve(code));
    server.listen(file, () => server.close(() => resolve(undefined)));
  });
}

function takeLock(file: string, clock: Clock): boolean {
  try {
    const lock = openSync(file, 'wx', 0o600);
    writeSync(lock, `${process.pid}\n`);
    closeSync(lock);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const facts = statSync(file, { throwIfNoEntry: false });
  const isOld = facts !== undefined && clock.date().getTime() - facts.mtimeMs > lockMaxMs;
  if (isOld || !isHolderAlive(file)) rmSync(file, { force: true });
  return false;
}

/** A lock file without a pid was just created. */
function isHolderAlive(file: string): boolean {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    return pid === 0 || isAlive(pid);
  } catch {
    return true;
  }
}
