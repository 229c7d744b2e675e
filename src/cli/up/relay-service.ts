/**
 * Serves the clients that are connected by relays, and ends a host that a relay started when nothing uses it any more.
 * Not here: the rules of admission (relay-admission.ts), the socket (relay-socket.ts), what counts as use (usage.ts).
 */
import type { ServedWorkers } from '../../broker/serve-workers.js';
import type { LogLevel } from '../../config/listen-settings.js';
import type { Gateway } from '../../gateway/gateway.js';
import type { Host } from '../../host/host.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { realPath } from '../config/find-config.js';
import { upgradeNotes } from '../control/control-protocol.js';
import { socketPath } from '../process/host-address.js';
import type { EndReason } from '../relay/relay-state.js';
import { version } from '../version.js';
import { watchIdle } from './idle-exit.js';
import { RelayAdmission } from './relay-admission.js';
import { openRelaySocket, type RelaySocket } from './relay-socket.js';
import type { UpOptions } from './up-options.js';
import { isReplaceable, usageOf } from './usage.js';

interface RelayServiceOptions {
  readonly options: UpOptions;
  readonly host: Host;
  readonly gateway: Gateway;
  readonly workers: () => ServedWorkers | undefined;
  readonly clock: Clock;
  readonly idleMs: () => number;
  readonly isEnding: () => boolean;
  readonly end: (reason: EndReason) => void;
  /** Reads the configuration again, because a variable was added. */
  readonly reload: () => void;
  readonly log: (level: LogLevel, text: string) => void;
  readonly onProblem: (error: unknown) => void;
}

const clientsMax = 512;

export class RelayService {
  readonly #options: RelayServiceOptions;
  readonly #admission: RelayAdmission;
  #socket: RelaySocket | undefined;
  #cancelIdle: Cancel = () => {};
  /** The version of a relay that is newer than this host. */
  #upgradePending: string | undefined;

  constructor(options: RelayServiceOptions) {
    this.#options = options;
    const { config, host, port, auth } = options.options;
    this.#admission = new RelayAdmission({
      ...{ config: realPath(config), version, pid: process.pid, env: process.env, isEnding: options.isEnding },
      options: { host, port: port?.toString(), auth },
      url: () => options.gateway.url,
      onVariablesAdded: (names) => {
        options.log('info', `a client added ${names.join(', ')} to the environment`);
        options.reload();
      },
      onNewer: (newer, isUrgent) => this.#newer(newer, isUrgent),
    });
  }

  async open(): Promise<void> {
    const { gateway, clock, idleMs, onProblem, end, options } = this.#options;
    this.#socket = await openRelaySocket({
      ...{ file: socketPath(options.dataDir, 'stdio.sock'), clock, clientsMax },
      welcome: (hello, fullAt) => this.#admission.welcome(hello, fullAt),
      serve: async (socket, client) => {
        await gateway.serveStdio(socket, socket, client).catch(onProblem);
        this.#admission.ended(client);
      },
    });
    // A host that a terminal or a service manager started ends only on request.
    if (options.isRelayed)
      this.#cancelIdle = watchIdle(
        clock,
        idleMs,
        () => this.#usage(),
        () => end('idle'),
      );
  }

  /** Makes `stdio.sock` again if it was removed. A relay that does not find it asks over the control socket whether a host runs. */
  async restoreSocket(): Promise<void> {
    const isRestored = await this.#socket?.restore();
    if (isRestored) this.#options.log('warn', 'stdio.sock was removed from the data directory; it was made again');
  }

  facts() {
    const relays = this.#socket?.count ?? 0;
    return { relays, environment: this.#admission.notes(), ...this.#pending() };
  }

  notes(): readonly string[] {
    const { options, idleMs } = this.#options;
    const idleExitMs = options.isRelayed ? idleMs() : undefined;
    return [...this.#admission.notes(), ...upgradeNotes({ version, idleExitMs, ...this.#pending() })];
  }

  async stop(reason: EndReason): Promise<void> {
    this.#cancelIdle();
    await this.#socket?.stop(reason);
  }

  async close(): Promise<void> {
    await this.#socket?.close();
  }

  #pending(): { readonly upgradePending?: string } {
    return this.#upgradePending === undefined ? {} : { upgradePending: this.#upgradePending };
  }

  #usage() {
    const { host, gateway, workers, end } = this.#options;
    const parts = { host, gateway, workers: workers() };
    if (this.#upgradePending !== undefined && isReplaceable(parts)) end('upgrade');
    return usageOf(parts, this.#socket?.count ?? 0);
  }

  #newer(newer: string, isUrgent: boolean): void {
    const { log, end } = this.#options;
    if (this.#upgradePending !== newer) log('info', `a client has version ${newer}: upgrade pending`);
    this.#upgradePending = newer;
    if (isUrgent) end('upgrade');
  }
}
