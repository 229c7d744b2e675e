/**
 * A complete Hostler that serves workers, as processes: `up`, `worker` and `key`, with servers that write each call into a ledger.
 */
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { connect, type RemoteTools } from '../../../src/broker/worker/index.js';
import { type Ended, type Ready, Running, Workplace } from '../../cli/hostler-process.js';
import { eventually } from '../../eventually.js';

const ledgerServer = fileURLToPath(new URL('../../fakes/ledger-server.pl', import.meta.url));
const sleepyServer = fileURLToPath(new URL('../../fakes/sleepy-server.pl', import.meta.url));
const tools = JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]);

export interface BrokerReady extends Ready {
  readonly broker: string;
}

export const newKey = (): string => `hk_${randomBytes(32).toString('base64url')}`;
export const hashOf = (key: string): string => `sha256:${createHash('sha256').update(key).digest('hex')}`;

export class BrokerPlace extends Workplace {
  readonly #workers: RemoteTools[] = [];

  /** An entry of `mcpServers`. */
  ledgerEntry(name: string, env: Readonly<Record<string, string>> = {}): Record<string, unknown> {
    return {
      ...{ command: 'perl', args: [ledgerServer], pins: 'off' },
      env: { LEDGER: path.join(this.folder, `${name}.ledger`), TOOLS: tools, ...env },
    };
  }

  /** The file in which the server of `upSleepy` records the start and end of each call. */
  get sleepyLedger(): string {
    return path.join(this.folder, 'sleepy.ledger');
  }

  /** Starts one server whose calls sleep, and a worker with this key. After a restart the broker has the same port. */
  async upSleepy(key: string, limits: object = {}): Promise<{ readonly up: Running; readonly tools: RemoteTools }> {
    const configure = (port: number) =>
      this.configure({
        mcpServers: {
          sleepy: {
            ...{ command: 'perl', args: [sleepyServer], pins: 'off' },
            env: { LEDGER: this.sleepyLedger, TOOLS: tools },
          },
        },
        roles: { all: { allow: ['sleepy/*'] } },
        keys: { ann: { hash: hashOf(key), worker: 'ann', role: 'all' } },
        broker: { listen: { port }, limits },
      });
    configure(0);
    const up = this.up();
    const { broker } = (await up.ready()) as BrokerReady;
    configure(Number(new URL(broker).port));
    return { up, tools: await this.worker(broker, key) };
  }

  /** The calls that this server ran, in order. */
  ran(name: string): string[] {
    try {
      return readFileSync(path.join(this.folder, `${name}.ledger`), 'utf8')
        .split('\n')
        .filter(Boolean);
    } catch {
      return [];
    }
  }

  write(name: string, text: string): string {
    const file = path.join(this.folder, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  }

  async upWithBroker(...args: string[]): Promise<BrokerReady> {
    return (await this.up(...args).ready()) as BrokerReady;
  }

  /** Runs `hostler key` with the configuration of this place, and returns its output. */
  async key(...args: string[]): Promise<Ended> {
    const running = new Running(['key', ...args, '--config', this.config]);
    running.child.stdin?.end();
    return running.closed;
  }

  async worker(broker: string, key: string): Promise<RemoteTools> {
    const worker = await connect({ broker, key, connectMs: 20_000 });
    this.#workers.push(worker);
    return worker;
  }

  /** A self-signed certificate for this machine. */
  certificate(): { readonly cert: string; readonly key: string } {
    const [cert, key] = [path.join(this.folder, 'cert.pem'), path.join(this.folder, 'key.pem')];
    execFileSync(
      'openssl',
      [
        ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
        ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'],
        ...['-keyout', key, '-out', cert],
      ],
      { stdio: 'ignore' },
    );
    return { cert, key };
  }

  override async remove(): Promise<void> {
    for (const worker of this.#workers) await worker.close();
    await super.remove();
  }
}

/** `hostler worker` as a process, which the test sends lines of JSON. */
export class WorkerProcess extends Running {
  #id = 0;

  /** Each process has its own cache, unless `env` names one. */
  constructor(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const cache = mkdtempSync(path.join(os.tmpdir(), 'hostler-worker-'));
    super(['worker', '--json', ...args], { XDG_CACHE_HOME: cache, ...env });
    void this.closed.then(() => rmSync(cache, { recursive: true, force: true }));
  }

  async ask(method: string, params: object): Promise<Record<string, unknown>> {
    const id = ++this.#id;
    this.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    return eventually(`an answer to ${method}`, () =>
      this.stdout
        .split('\n')
        .filter((line) => line.startsWith('{'))
        .map((line) => JSON.parse(line) as Record<string, unknown>)
        .find((answer) => answer.id === id),
    );
  }

  async initialize(): Promise<void> {
    await this.ask('initialize', {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'e2e', version: '1' },
    });
    this.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })}\n`);
  }

  /** Ends the stdin of the worker, as a client that exits does. */
  async end(): Promise<void> {
    this.child.stdin?.end();
    await this.closed;
  }
}
