/** A real nats-server on a free port of the loopback, with a folder of its own; ended by its process id. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { headBytes } from '../../src/broker/nats/nats-streams.js';
import { messageBytesMax } from '../../src/broker/ports.js';
import { freePort } from './free-port.js';

export interface NatsServerFake {
  readonly url: string;
  readonly port: number;
  /** As `kill -9` does. Resolves when it is gone. */
  kill(): Promise<void>;
  /** On the same port and folder; resolves when it serves. */
  start(): Promise<void>;
  /** Reads a new configuration, as after SIGHUP. */
  reload(config: string): void;
  readonly log: () => string;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface NatsFakeOptions {
  /** All of it but where it listens and keeps its files; undefined: everybody may do everything. */
  readonly config?: (where: { readonly port: number; readonly storeDir: string }) => string;
}

const openConfig = ({ port, storeDir }: { port: number; storeDir: string }): string => `
listen: "127.0.0.1:${port}"
max_payload: ${messageBytesMax + headBytes}
jetstream { store_dir: "${storeDir}", max_mem: 64M, max_file: 64G }
`;

/** The server greets as soon as it serves. */
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

export async function startNatsServer({ config = openConfig }: NatsFakeOptions = {}): Promise<NatsServerFake> {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-nats-'));
  const configFile = path.join(folder, 'nats.conf');
  const port = await freePort();
  writeFileSync(configFile, config({ port, storeDir: path.join(folder, 'store') }));
  let child: ChildProcess | undefined;
  let log = '';

  const start = async () => {
    const started = spawn('nats-server', ['-c', configFile], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` },
    });
    const hear = (chunk: Buffer) => {
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
  const end = async (signal: NodeJS.Signals) => {
    const ending = child;
    child = undefined;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
    ending.kill(signal);
    await once(ending, 'exit');
  };
  const stop = async () => {
    await end('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  await start();
  return {
    url: `nats://127.0.0.1:${port}`,
    port,
    start,
    kill: () => end('SIGKILL'),
    reload(text) {
      writeFileSync(configFile, text);
      child?.kill('SIGHUP');
    },
    log: () => log,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
