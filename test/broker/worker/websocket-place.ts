/** A scripted host that serves workers over WebSocket on a local port. It can be stopped and restarted at the same port. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Identities } from '../../../src/broker/identities.js';
import { openWebSocketTransport, type WebSocketTransport } from '../../../src/broker/websocket/websocket-transport.js';
import { newKey } from '../../../src/config/keys.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { workerEntry } from '../../contract/broker/transports.js';
import { ScriptedService } from '../../fakes/scripted-service.js';

export const workerKey = newKey();
const entry = workerEntry('w1', workerKey, { role: 'reader' });

export class WebSocketPlace {
  readonly #folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-worker-'));
  readonly #identities = new Identities(new Map([['w1', entry]]), systemClock);
  readonly keyFile = path.join(this.#folder, 'key');
  readonly host: ScriptedService;
  #transport: WebSocketTransport | undefined;
  #port = 0;

  constructor(tools: readonly string[] = ['nova/click']) {
    writeFileSync(this.keyFile, `${workerKey}\n`, { mode: 0o600 });
    this.host = new ScriptedService(tools);
  }

  /** Folder for the caches of the worker. */
  get env(): Record<string, string> {
    return { XDG_CACHE_HOME: path.join(this.#folder, 'cache') };
  }

  get url(): string {
    return `ws://127.0.0.1:${this.#port}/broker`;
  }

  get connections(): number {
    return this.#transport?.connections ?? 0;
  }

  async start(): Promise<void> {
    this.#transport = await openWebSocketTransport({
      ...{ handlers: this.host, identities: this.#identities, storeId: 'store-1', clock: systemClock },
      ...{ listen: { port: this.#port }, limits: { connections: 100, bytesPerSecond: 64 * 1024 * 1024 } },
    });
    this.#port = Number(new URL(this.#transport.url).port);
  }

  async stop(): Promise<void> {
    await this.#transport?.stop();
    await this.#transport?.close();
    this.#transport = undefined;
  }

  /** Changes the tools and notifies the workers. */
  change(tools: readonly string[]): void {
    this.host.setTools(tools);
    this.#transport?.notify(() => true, { op: 'manifest_changed', revision: this.host.revision });
  }

  revoke(): void {
    this.#identities.replace(new Map());
  }

  grant(): void {
    this.#identities.replace(new Map([['w1', entry]]));
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
