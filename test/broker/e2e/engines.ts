/** A host in this process that serves workers over real connections: with SQLite and WebSocket, or with a real nats-server. */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { newUserPair } from '../../../src/broker/nats/nats-client.js';
import { natsServerConfig } from '../../../src/broker/nats/server-config.js';
import { type ServedWorkers, type ServeWorkersOptions, serveWorkers } from '../../../src/broker/serve-workers.js';
import { connect, type RemoteTools } from '../../../src/broker/worker/index.js';
import { brokerEntry } from '../../../src/config/broker-settings.js';
import { newKey } from '../../../src/config/keys.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';

const onKeyProblem = (problem: unknown) => {
  throw problem;
};

/** Roles by name of the worker; undefined: the worker has no role. */
export type Workers = Readonly<Record<string, string | undefined>>;
export const engines = ['websocket', 'nats'] as const;
export type EngineName = (typeof engines)[number];

export class Rig {
  readonly #engine: EngineName;
  readonly #folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-engine-'));
  readonly #secrets = new Map<string, { readonly key: string; readonly id: string }>();
  readonly #ends: (() => Promise<unknown>)[] = [];
  #nats: NatsServerFake | undefined;
  #hostKey: string | undefined;

  private constructor(engine: EngineName) {
    this.#engine = engine;
  }

  static async open(engine: EngineName, names: readonly string[]): Promise<Rig> {
    const rig = new Rig(engine);
    if (engine === 'nats') await rig.#openNats(names);
    else
      for (const name of names) {
        const key = newKey();
        rig.#secrets.set(name, { key, id: `sha256:${createHash('sha256').update(key).digest('hex')}` });
      }
    return rig;
  }

  async #openNats(names: readonly string[]): Promise<void> {
    const host = await newUserPair();
    this.#hostKey = path.join(this.#folder, 'host.key');
    writeFileSync(this.#hostKey, host.seed, { mode: 0o600 });
    for (const name of names) {
      const { seed, publicKey } = await newUserPair();
      this.#secrets.set(name, { key: seed, id: publicKey });
    }
    const workers = [...this.#secrets].map(([worker, { id }]) => ({ worker, epoch: 'e', publicKey: id }));
    this.#nats = await startNatsServer({
      config: ({ port, storeDir }) =>
        natsServerConfig({ listen: `127.0.0.1:${port}`, storeDir, hosts: [host.publicKey], workers }),
    });
    this.#ends.push(() => this.#nats?.stop() ?? Promise.resolve());
  }

  get nats(): NatsServerFake {
    if (!this.#nats) throw new Error('this rig has no NATS');
    return this.#nats;
  }

  keys(workers: Workers): ServeWorkersOptions['keys'] {
    const entry = (name: string, role: string | undefined) => {
      const { id = '' } = this.#secrets.get(name) ?? {};
      const secret = this.#engine === 'nats' ? { nkey: id } : { hash: id };
      return { ...secret, worker: name, epoch: 'e', ...(role === undefined ? {} : { role }) };
    };
    return Object.fromEntries(Object.entries(workers).map(([name, role]) => [name, entry(name, role)]));
  }

  async serve(
    host: ServeWorkersOptions['host'],
    workers: Workers,
    more: Partial<ServeWorkersOptions> & { readonly limits?: object; readonly listen?: object } = {},
  ): Promise<ServedWorkers> {
    const { limits = {}, listen = {}, ...options } = more;
    const nats = { url: this.#nats?.url, keyFile: this.#hostKey, durability: 'process' };
    const served = await serveWorkers({
      ...{ host, keys: this.keys(workers), dataDir: this.#folder, clock: systemClock, onKeyProblem },
      settings: brokerEntry.parse({ ...(this.#nats ? nats : { listen: { port: 0, ...listen } }), limits }),
      ...options,
    });
    let isClosed = false;
    const close = async (graceMs?: number) => {
      if (isClosed) return;
      isClosed = true;
      await served.close(graceMs);
    };
    this.#ends.push(() => close());
    return { ...served, close };
  }

  async worker(served: ServedWorkers, name: string): Promise<RemoteTools> {
    const { key = '' } = this.#secrets.get(name) ?? {};
    const broker = served.url ?? `${this.#nats?.url}/${name}`;
    const tools = await connect({ broker, key, connectMs: 20_000 });
    this.#ends.push(() => tools.close());
    return tools;
  }

  async close(): Promise<void> {
    for (const end of this.#ends.splice(0).reverse()) await end();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
