/** A real nats-server on a free port of the loopback, with its own folder; ended by its process id. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { payloadBytes as usualPayload } from '../../src/broker/nats/server-config.js';
import { freePort } from './free-port.js';

export interface NatsServerFake {
  readonly url: string;
  readonly port: number;
  readonly storeDir: string;
  readonly pid: () => number | undefined;
  /** As `kill -9`. Resolves when the process has ended. */
  kill(): Promise<void>;
  /** Starts it again, with the same port and folder. Resolves when it serves. */
  start(): Promise<void>;
  /** SIGSTOP and SIGCONT. */
  pause(): void;
  resume(): void;
  /** Writes a new configuration, and reloads it as `hostler key nats --reload` does. */
  reload(config: string): Promise<void>;
  /** Deletes the store. The server must not run. */
  wipe(): void;
  /** Copies the store, and puts a copy back. The server must not run. */
  backUp(): void;
  restore(): void;
  /** Disk space of the store. */
  storeBytes(): number;
  readonly log: () => string;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface NatsFakeOptions {
  /** The complete configuration. Default: no access control. */
  readonly config?: (where: { readonly port: number; readonly storeDir: string }) => string;
  /** For the default configuration. */
  readonly payloadBytes?: number;
}

const openConfig = ({ port, storeDir }: { port: number; storeDir: string }, payloadBytes: number): string => `
listen: "127.0.0.1:${port}"
max_payload: ${payloadBytes}
jetstream { store_dir: "${storeDir}", max_mem: 64M, max_file: 2G }
`;

/** The server sends INFO as soon as it serves. */
function greets(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('data', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
    socket.once('close', () => resolve(false));
  });
}

/** Allocated blocks, as `du` counts them. A file may be removed meanwhile. */
function diskBytes(folder: string): number {
  let sum = 0;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const at = path.join(folder, entry.name);
    try {
      sum += entry.isDirectory() ? diskBytes(at) : statSync(at).blocks * 512;
    } catch {}
  }
  return sum;
}

export async function startNatsServer(options: NatsFakeOptions = {}): Promise<NatsServerFake> {
  const { payloadBytes = usualPayload } = options;
  const { config = (where: { port: number; storeDir: string }) => openConfig(where, payloadBytes) } = options;
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-nats-'));
  const configFile = path.join(folder, 'nats.conf');
  const storeDir = path.join(folder, 'store');
  const backup = path.join(folder, 'backup');
  const port = await freePort();
  writeFileSync(configFile, config({ port, storeDir }));
  let child: ChildProcess | undefined;
  let log = '';
  let reloads = 0;

  const start = async () => {
    const started = spawn('nats-server', ['-c', configFile], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` },
    });
    const hear = (chunk: Buffer) => {
      reloads += chunk.toString().split('Reloaded server configuration').length - 1;
      log = (log + chunk).slice(-20_000);
    };
    started.stdout.on('data', hear);
    started.stderr.on('data', hear);
    started.on('error', (error) => hear(Buffer.from(String(error))));
    child = started;
    while (!(await greets(port))) {
      if (started.pid === undefined || started.exitCode !== null) throw new Error(`nats-server did not start: ${log}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const kill = async () => {
    const ending = child;
    child = undefined;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
    ending.kill('SIGKILL');
    await once(ending, 'exit');
  };
  const stop = async () => {
    await kill();
    rmSync(folder, { recursive: true, force: true });
  };
  await start();
  return {
    ...{ url: `nats://127.0.0.1:${port}`, port, storeDir, start, kill, stop, log: () => log, pid: () => child?.pid },
    pause: () => void child?.kill('SIGSTOP'),
    resume: () => void child?.kill('SIGCONT'),
    async reload(text) {
      writeFileSync(configFile, text);
      for (let times = 0; times < 2; times++) {
        const before = reloads;
        child?.kill('SIGHUP');
        while (reloads === before) await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
    wipe: () => rmSync(storeDir, { recursive: true, force: true }),
    backUp: () => cpSync(storeDir, backup, { recursive: true }),
    restore() {
      rmSync(storeDir, { recursive: true, force: true });
      cpSync(backup, storeDir, { recursive: true });
    },
    storeBytes: () => (existsSync(storeDir) ? diskBytes(storeDir) : 0),
    [Symbol.asyncDispose]: stop,
  };
}
