/** A host in a separate process (host-driver.mjs), which a test can kill. Needs dist/. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { epochOf, type NatsStage } from './nats-rig.js';

export interface HostProcess {
  readonly owner: string;
  readonly pid: number;
  /** Sends SIGKILL. Resolves when the process has ended. */
  kill(): Promise<void>;
  /** Sends SIGTERM. Resolves when the process has ended. */
  stop(): Promise<void>;
  pause(): void;
  resume(): void;
}

export interface HostProcessOptions {
  readonly url?: string;
  readonly ledger?: string;
  readonly waitMs?: number;
  readonly replicas?: number;
  readonly unsafeReplicas?: boolean;
  readonly concurrency?: number;
}

const started = new Set<ChildProcess>();

export async function startHostProcess(
  stage: Pick<NatsStage, 'server' | 'hostPair' | 'pairs'>,
  options: HostProcessOptions = {},
): Promise<HostProcess> {
  const workers = [...stage.pairs.keys()].map((name) => ({ name, epoch: epochOf(name) }));
  const settings = { url: stage.server.url, key: stage.hostPair.seed, workers, ...options };
  const driver = path.join(import.meta.dirname, 'host-driver.mjs');
  const child = spawn(process.execPath, [driver, JSON.stringify(settings)], { stdio: ['ignore', 'pipe', 'pipe'] });
  started.add(child);
  let errors = '';
  child.stderr.on('data', (chunk) => {
    errors = (errors + chunk).slice(-5_000);
  });
  const owner = await new Promise<string>((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (chunk) => {
      out += chunk;
      const ready = /ready (\S+)\n/.exec(out);
      if (ready?.[1]) resolve(ready[1]);
    });
    child.once('exit', () => reject(new Error(`the host ended: ${errors}`)));
  });
  const end = async (signal: NodeJS.Signals) => {
    started.delete(child);
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, 'exit');
  };
  return {
    ...{ owner, pid: child.pid ?? 0 },
    kill: () => end('SIGKILL'),
    stop: () => end('SIGTERM'),
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
  };
}

/** Ends all host processes. Call it after each test. */
export async function endHostProcesses(): Promise<void> {
  for (const child of started) {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
  started.clear();
}

/** How often the call of each key ran, from the ledger into which the tools write their arguments. */
export function runsOf(ledger: string): Map<string, number> {
  const runs = new Map<string, number>();
  if (!existsSync(ledger)) return runs;
  for (const line of readFileSync(ledger, 'utf8').split('\n')) {
    if (line === '') continue;
    const { key } = JSON.parse(line.slice(line.indexOf(' ') + 1)) as { key: string };
    runs.set(key, (runs.get(key) ?? 0) + 1);
  }
  return runs;
}
