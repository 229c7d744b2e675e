/** The embedded broker on a port of this machine, with a scripted host inside its process, for workers in others. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Broker, openBroker } from '../../../src/broker/embedded/broker.js';
import type { Credential } from '../../../src/broker/embedded/credentials.js';
import { localHostLink } from '../../../src/broker/embedded/host-link.js';
import { digestOf } from '../../../src/config/keys.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';
import { ScriptedHost, type ScriptedHostOptions } from '../../fakes/scripted-host.js';

export const workerKey = `worker-key-${'k'.repeat(32)}`;

const credential: Credential = {
  ...{ name: 'worker', digest: digestOf(workerKey), mailbox: 'w1', role: 'reader', kind: 'worker' },
  ...{ sendsTo: ['host'], expiresAtMs: undefined },
};

export class EmbeddedBroker {
  readonly #store = new MemoryMailStore();
  readonly #folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-worker-'));
  readonly keyFile = path.join(this.#folder, 'key');
  #broker: Broker | undefined;
  #port = 0;
  readonly host: ScriptedHost;

  constructor(options: ScriptedHostOptions = {}) {
    writeFileSync(this.keyFile, `${workerKey}\n`, { mode: 0o600 });
    this.host = new ScriptedHost(
      (handlers, signal) => localHostLink((this.#broker as Broker).core)(handlers, signal),
      options,
    );
  }

  get url(): string {
    return `ws://127.0.0.1:${this.#port}/broker`;
  }

  get connections(): number {
    return this.#broker?.status().connections ?? 0;
  }

  async start(): Promise<void> {
    this.#broker = await openBroker({
      ...{ store: this.#store, clock: systemClock, credentials: [credential] },
      listen: { port: this.#port },
    });
    this.#port = Number(new URL(this.#broker.url as string).port);
    await this.host.connect();
  }

  /** What is held is there after the next start, at the same port. */
  async stop(): Promise<void> {
    await this.#broker?.close();
    this.#broker = undefined;
  }

  /** The key of the worker counts no more. */
  revoke(): void {
    this.#broker?.rekey([]);
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
