/**
 * A Host → MCP clients: joins keys, router, bridge and ingresses into one gateway. The composition root of this folder.
 * Not here: what each part does (gateway-parts.ts names them), the command around it (cli/up.ts).
 *
 * Invariants: nothing listens before the keys are known; closing ends clients before anything they use is taken away, and the
 * host stays open.
 */
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { parseKeys } from '../config/keys.js';
import type { ListenSettings } from '../config/listen-settings.js';
import { isLoopback } from '../config/values.js';
import type { Host } from '../host/host.js';
import type { JointChange } from '../host/host-interface.js';
import { type Cancel, type Clock, systemClock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { warnProcess } from '../kernel/problems.js';
import { type Random, systemRandom } from '../kernel/random.js';
import { embedder, type Principal } from '../policy/operation.js';
import { createBridge } from './eras/eras.js';
import type { PrincipalNow, Router } from './exchange.js';
import type { HttpIngress } from './http/http-ingress.js';
import type { Route, Routes } from './http/routes.js';
import { Keyring } from './keys/keys.js';
import { readOrCreateLocalKey } from './keys/local-key.js';
import { addFigures, type BrokerFigures, type IngressFigures } from './metrics/figures.js';
import { healthz, Readiness } from './metrics/health.js';
import { createRouter } from './routing/router.js';
import type { StdioIngress } from './stdio/stdio-ingress.js';

/**
 * The capabilities that a host behind a gateway declares to servers. The bridge answers for clients that lack one.
 */
export const gatewayCapabilities = {
  roots: {},
  sampling: {},
  elicitation: { form: {}, url: {} },
} as const;

const expiryLookMs = 60_000;
/** As `listen.drain` of the configuration. */
const drainMsDefault = 10_000;

export interface GatewaySettings {
  readonly listen: Pick<ListenSettings, 'host' | 'port' | 'allowedHosts' | 'allowedOrigins'>;
  /** As in `hostler.json`. */
  readonly keys?: Readonly<Record<string, unknown>>;
  /** `none`: every caller is the operator. */
  readonly auth: 'key' | 'none';
  readonly version: string;
  /** How long `close` waits for open requests; 10 s when absent. */
  readonly drainMs?: number;
}

export interface GatewayOptions {
  readonly host: Host;
  readonly settings: GatewaySettings;
  /** Where the local key lies. Without it there is none, and only keys of the configuration open anything. */
  readonly dataDir?: string | undefined;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly onProblem?: (error: unknown) => void;
  /** @internal For tests: replaces parts. It changes without notice. */
  readonly parts?: GatewayParts;
  /** Shown among the metrics. */
  readonly brokerFigures?: () => BrokerFigures | undefined;
  /** The host is opened after the port is taken: clients are asked to wait until `opened`. */
  readonly opensLater?: boolean;
}

export interface Gateway {
  /** Where all servers are; undefined while it does not listen. */
  readonly url: string | undefined;
  /** The local key; undefined without one. */
  readonly key: string | undefined;
  /** It was made by this start. */
  readonly isNewKey: boolean;
  readonly keyFile: string | undefined;
  listen(): Promise<string>;
  /** With `opensLater`: the host is open. */
  opened(): void;
  /** Serves one client over a pipe, as the operator. Resolves when the pipe is over. */
  serveStdio(input: Readable, output: Writable): Promise<void>;
  /** Replaces all keys but the local one. Problems of a key go to `onProblem`. */
  replaceKeys(keys: Readonly<Record<string, unknown>>): void;
  /** The same, to be done later together with other changes: reads the keys now, and throws now if they cannot be read. */
  prepareKeys(keys: Readonly<Record<string, unknown>>): JointChange;
  /** From now on clients may use these names of ours, and pages of these origins. Where it listens stays as it is. */
  allow(names: Pick<ListenSettings, 'allowedHosts' | 'allowedOrigins'>): void;
  /**
   * Reports `stopping` at `/readyz`, refuses new requests, waits up to `drainMs` for open ones (by default that of the
   * settings), then ends them and closes the port.
   */
  close(drainMs?: number): Promise<void>;
}

export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  return new JoinedGateway(options);
}

const hasMembers = (keys: Readonly<Record<string, unknown>> = {}): boolean => Object.keys(keys).length > 0;

class JoinedGateway implements Gateway {
  url: string | undefined;
  readonly key: string | undefined;
  readonly isNewKey: boolean;
  readonly keyFile: string | undefined;
  readonly #options: GatewayOptions;
  readonly #parts: GatewayParts;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #router: Router;
  readonly #keyring: Keyring;
  readonly #onProblem: (error: unknown) => void;
  /** Problems of the settings are never silent: a key that cannot be used, an address that others can listen in on. */
  readonly #onConfigProblem: (error: unknown) => void;
  /** Whether the configuration has keys, usable or not. The local key does not count: only the operator has it. */
  #hasKeys: boolean;
  #http: HttpIngress | undefined;
  readonly #pipes = new Set<StdioIngress>();
  #onStopping: () => void = () => {};
  #onClosed: () => void = () => {};
  #closing: Promise<void> | undefined;
  #cancelExpiry: Cancel | undefined;
  #isOpen: boolean;
  #onOpen: () => void = () => {};

  constructor(options: GatewayOptions) {
    const { host, settings, dataDir, clock = systemClock, random = systemRandom, onProblem } = options;
    const parts = options.parts ?? defaultParts;
    this.#options = options;
    this.#parts = parts;
    this.#clock = clock;
    this.#random = random;
    this.#onProblem = onProblem ?? (() => {});
    this.#onConfigProblem = onProblem ?? warnProcess;
    this.#isOpen = !options.opensLater;
    host.learnTools();
    const local = dataDir === undefined || settings.auth === 'none' ? undefined : parts.readOrCreateLocalKey(dataDir);
    this.key = local?.key;
    this.isNewKey = local?.isNew ?? false;
    this.keyFile = local && path.join(dataDir as string, 'key');
    const keys = parts.parseKeys(settings.keys ?? {}, this.#onConfigProblem);
    this.#keyring = new parts.Keyring({ clock, localKey: this.key, keys });
    this.#hasKeys = hasMembers(settings.keys);
    const router = parts.createRouter({
      upstreams: host,
      mayBePublic: () => !this.#hasKeys && !host.hasRoles,
      bridge: parts.createBridge({ clock, random }),
      clock,
      serverInfo: { name: 'hostler', version: settings.version },
      onProblem: this.#onProblem,
    });
    this.#router = router;
    host.showUnrouted((server) => router.unroutedOf?.(server));
    this.#awaitExpiry();
  }

  async listen(): Promise<string> {
    const { listen, auth } = this.#options.settings;
    const { host, port, allowedHosts, allowedOrigins } = listen;
    const [createHttpIngress, routes] = await Promise.all([this.#parts.http(), this.#routes()]);
    this.#http = await createHttpIngress({
      ...{ router: this.#router, clock: this.#clock, random: this.#random, onProblem: this.#onProblem },
      authenticate: auth === 'none' ? () => embedder : (header) => this.#keyring.authenticate(header),
      listen: { host, port, hosts: allowedHosts, origins: allowedOrigins },
      routes,
      isOpen: () => this.#isOpen,
    });
    try {
      this.url = await this.#http.listen();
      if (!isLoopback(host)) this.#onConfigProblem(plainHttp(host));
      return this.url;
    } catch (error) {
      throw cannotListen(host, port, error as NodeJS.ErrnoException);
    }
  }

  opened(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#onOpen();
  }

  async serveStdio(input: Readable, output: Writable): Promise<void> {
    const createStdioIngress = await this.#parts.stdio();
    const pipe = createStdioIngress({
      ...{ router: this.#router, clock: this.#clock, input, output, onProblem: this.#onProblem },
      principal: embedder,
      endpoint: { kind: 'all' },
    });
    this.#pipes.add(pipe);
    await pipe.closed;
    this.#pipes.delete(pipe);
  }

  replaceKeys(keys: Readonly<Record<string, unknown>>): void {
    const { swap, announce } = this.prepareKeys(keys);
    swap();
    announce();
  }

  prepareKeys(keys: Readonly<Record<string, unknown>>): JointChange {
    const read = this.#parts.parseKeys(keys, this.#onConfigProblem);
    const swap = () => {
      this.#keyring.replace(read);
      this.#hasKeys = hasMembers(keys);
    };
    return { swap, announce: () => this.#rekeyed() };
  }

  allow({ allowedHosts, allowedOrigins }: Pick<ListenSettings, 'allowedHosts' | 'allowedOrigins'>): void {
    this.#http?.allow({ hosts: allowedHosts, origins: allowedOrigins });
  }

  /** Ends the streams of revoked keys; the others follow the current roles. */
  #rekeyed(): void {
    if (this.#options.settings.auth === 'none' || this.#closing !== undefined) return;
    const now: PrincipalNow = (principal) => this.#keyring.now(principal);
    this.#http?.rekeyed(now);
    this.#router.rekeyed?.(now);
    this.#awaitExpiry();
  }

  #awaitExpiry(): void {
    const clock = this.#clock;
    this.#cancelExpiry?.();
    const next = this.#keyring.nextExpiryMs();
    if (next === undefined) return;
    // Wall time may jump: looked at again meanwhile.
    const waitMs = Math.min(Math.max(next - clock.date().getTime(), 0), expiryLookMs);
    this.#cancelExpiry = clock.at(clock.nowMs() + waitMs, () => this.#rekeyed());
  }

  close(drainMs = this.#options.settings.drainMs ?? drainMsDefault): Promise<void> {
    this.#closing ??= this.#close(drainMs);
    return this.#closing;
  }

  async #close(drainMs: number): Promise<void> {
    this.#cancelExpiry?.();
    // Before anything is refused, so that a load balancer can send clients elsewhere first.
    this.#onStopping();
    // First, while streams are open: each gets its result.
    this.#router.close?.();
    await Promise.all([this.#http?.close(drainMs), ...[...this.#pipes].map((pipe) => pipe.close(drainMs))]);
    this.#options.host.showUnrouted(undefined);
    this.#onClosed();
  }

  /** Calls are counted from here on. */
  async #routes(): Promise<Routes> {
    const { host, settings, brokerFigures: broker } = this.#options;
    const createMetrics = await this.#parts.metrics();
    const metrics = createMetrics(host, { ingress: () => this.#figures(), broker });
    const readiness = new this.#parts.Readiness(this.#clock);
    this.#onOpen = () => readiness.opened(host.whenAllListed());
    if (this.#isOpen) this.#onOpen();
    this.#onStopping = () => readiness.stopping();
    // Calls that are drained still count, and metrics can be read until the port closes.
    this.#onClosed = () => metrics.close();
    const shown = async () => ({ status: 200, contentType: metrics.contentType, body: await metrics.text() });
    const checksHost = settings.auth === 'none';
    const mayRead = (principal: Principal) => this.#mayReadMetrics(principal);
    return new Map<string, Route>([
      ['/healthz', { isPublic: true, answer: this.#parts.healthz }],
      ['/readyz', { isPublic: true, answer: readiness.readyz }],
      ['/metrics', { isPublic: false, checksHost, mayRead, answer: shown }],
    ]);
  }

  /** Metrics name all servers: not for a role, which may see some of them only, nor for a key that may call nothing. */
  #mayReadMetrics(principal: Principal): boolean {
    const { host } = this.#options;
    if (principal === embedder) return true;
    return principal.role === undefined && host.names().some((name) => host.isAllowed(principal, name, undefined));
  }

  #figures(): IngressFigures {
    return addFigures([
      ...(this.#http ? [this.#http.figures()] : []),
      ...[...this.#pipes].map((pipe) => pipe.figures()),
    ]);
  }
}

const plainHttp = (host: string): HostError =>
  new HostError(
    'invalid_spec',
    `listen.host: ${host} is reached by other machines over plain HTTP; keys and results can be read in transit`,
    {
      ...{ field: 'listen.host', reason: 'plain_http' },
      hint: 'put a reverse proxy that ends TLS in front, such as Caddy or nginx, and listen at 127.0.0.1',
    },
  );

function cannotListen(host: string, port: number, error: NodeJS.ErrnoException): Error {
  const { code } = error;
  if (code === undefined) return error;
  const facts = { field: '--port', reason: code, execution: 'not_executed', cause: error } as const;
  switch (code) {
    case 'EADDRINUSE':
      return new HostError('invalid_spec', `port ${port} of ${host} is already in use`, {
        ...facts,
        hint: 'stop the process that uses it, or use any free port with --port 0',
      });
    case 'EACCES':
      return new HostError('invalid_spec', `port ${port} of ${host} needs privileges that this user does not have`, {
        ...facts,
        hint: 'use a port above 1023, or any free port with --port 0',
      });
    default:
      return new HostError('invalid_spec', `hostler cannot listen at ${host}, port ${port} (${code})`, {
        ...facts,
        field: '--host',
        hint: 'set --host to an address of this machine, such as 127.0.0.1',
      });
  }
}

export const defaultParts = {
  createRouter,
  createBridge,
  Keyring,
  parseKeys,
  readOrCreateLocalKey,
  healthz,
  Readiness,
  http: async () => (await import('./http/http-ingress.js')).createHttpIngress,
  stdio: async () => (await import('./stdio/stdio-ingress.js')).createStdioIngress,
  metrics: async () => (await import('./metrics/metrics.js')).createMetrics,
};

export type GatewayParts = typeof defaultParts;
