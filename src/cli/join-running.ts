/**
 * `hostler up --stdio` where a Hostler runs already: its client is served by that one.
 * Invariant: only where that one serves the same configuration; another one would be other servers under the same name.
 */
import { realpathSync } from 'node:fs';
import { type Clock, sleep } from '../kernel/clock.js';
import { askRunning } from './control/control-client.js';
import { controlPath } from './control/control-path.js';
import type { RunningFacts } from './control/running-facts.js';
import { relayStdio, stdioPath } from './stdio-socket.js';
import type { UpOptions } from './up-options.js';

/** One that starts takes its socket a moment before it serves. */
const tryEveryMs = 100;
const triesMax = 100;
const aliveMs = 60_000;

/** Who has the data directory, if its configuration is ours. */
export async function findSame(
  { dataDir, config }: UpOptions,
  clock: Clock,
): Promise<Partial<RunningFacts> | undefined> {
  const facts = await askRunning(controlPath(dataDir), clock);
  return facts?.config !== undefined && real(facts.config) === real(config) ? facts : undefined;
}

/** Resolves when the client is done with. False: it never served. */
export async function joinRunning(options: UpOptions, clock: Clock, signal: AbortSignal): Promise<boolean> {
  // Nothing else does between two tries: stdin is not read yet, and timers of a clock keep no process alive.
  const alive = setInterval(() => {}, aliveMs);
  try {
    for (let tries = 0; tries < triesMax && !signal.aborted; tries++) {
      if (await relayStdio(stdioPath(options.dataDir), process.stdin, process.stdout, signal)) return true;
      await sleep(clock, tryEveryMs, signal);
      // It may have been about to end, and not to serve: then its place is free.
      if (!signal.aborted && !(await findSame(options, clock))) return false;
    }
    return signal.aborted;
  } finally {
    clearInterval(alive);
  }
}

function real(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    return file;
  }
}
