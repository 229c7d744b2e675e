/**
 * Composition root of this folder: joins keys, router, bridge and ingresses into one gateway for a Host.
 * Not here: the command that runs it (cli/up.ts).
 * Invariants: the keys are read before a port is opened. `close` ends clients before the parts they use; the host stays open.
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
import type { CurrentPrincipal, Router } from './exchange.js';
import type { HttpIngress } from './http/http-ingress.js';
import type { Route, Routes } from './http/routes.js';
import { Keyring, readOrCreateLocalKey } from './keys/keyring.js';
import { healthz, Readiness } from './metrics/health.js';
import { addFigures, type BrokerFigures, type IngressFigures } from './metrics/metric-table.js';
import { createRouter } from './routing/router.js';
import type { StdioIngress } from './stdio/stdio-ingress.js';

/** The capabilities that a host behind a gateway declares to servers. If a client lacks one, the bridge answers for it. */
export const gatewayCapabilities = {
  roots: {},
  sampling: {},
  elicitation: { form: {}, url: {} },
} as const;

const expiryLookMs = 60_000;
/** Equals the default of `listen.drain` in the configuration. */
const drainMsDefault = 10_000;

export interface GatewaySettings {
  readonly listen: Pick<ListenSettings, 'host' | 'port' | 'allowedHosts' | 'allowedOrigins' | 'tls'>;
  /** Entries as in `keys` of `hostler.json`. */
  readonly keys?: Readonly<Record<string, unknown>>;
  /** `none`: every caller gets the rights of the operator. */
  readonly auth: 'key' | 'none';
  readonly version: string;
  /** How long `close` waits for open requests. Default: 10 s. */
  readonly drainMs?: number;
}

export interface GatewayOptions {
  readonly host: Host;
  readonly settings: GatewaySettings;
  /** Directory of the local key. Without it only keys of the configuration are accepted. */
  readonly dataDir?: string | undefined;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly onProblem?: (error: unknown) => void;
  /** @internal Replaces parts in tests. */
  readonly parts?: GatewayParts;
  /** Broker figures for `/metrics`. */
  readonly brokerFigures?: () => BrokerFigures | undefined;
  /** True if the host opens after the port: requests get 503 with Retry-After until `opened` is called. */
  readonly opensLater?: boolean;
}

export interface Gateway {
  /** URL of `/mcp`; undefined before `listen` resolves. */
  readonly url: string | undefined;
  readonly key: string | undefined;
  /** True if this start created the local key. */
  readonly isNewKey: boolean;
  readonly keyFile: string | undefined;
  /** `port` replaces that of the settings. */
  listen(port?: number): Promise<string>;
  /** With `opensLater`: reports that the host is open. */
  opened(): void;
  /** Open HTTP requests and streams, sessions, and the number of HTTP answers since the start. */
  readonly httpUsage: { readonly open: number; readonly sessions: number; readonly answers: number };
  /**
   * Serves one client over a pipe with the rights of the operator. Resolves when the pipe has ended. `client`: id of a client that may
   * reconnect over another pipe.
   */
  serveStdio(input: Readable, output: Writable, client?: string): Promise<void>;
  /** Replaces all keys except the local one, and reports invalid keys to `onProblem`. */
  replaceKeys(keys: Readonly<Record<string, unknown>>): void;
  /** Like `replaceKeys`, but only reads the keys; the returned change applies them. Throws if they cannot be read. */
  prepareKeys(keys: Readonly<Record<string, unknown>>): JointChange;
  /** Replaces the accepted Host names and origins. The port does not change. */
  allow(names: Pick<ListenSettings, 'allowedHosts' | 'allowedOrigins'>): void;
  /** Reports `stopping` at `/readyz`, refuses new requests, drains open ones up to `drainMs`, and closes the port. */
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
  /** Reports unusable keys and plain HTTP on a public address. Without `onProblem` it writes a process warning. */
  readonly #onConfigProblem: (error: unknown) => void;
  /** True if the configuration has keys, even unusable ones. The local key does not count: only the operator has it. */
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

  async listen(port = this.#options.settings.listen.port): Promise<string> {
    const { listen, auth } = this.#options.settings;
    const { host, allowedHosts, allowedOrigins, tls } = listen;
    const [createHttpIngress, routes] = await Promise.all([this.#parts.http(), this.#routes()]);
    this.#http = await createHttpIngress({
      ...{ router: this.#router, clock: this.#clock, random: this.#random, onProblem: this.#onProblem },
      authenticate: auth === 'none' ? () => embedder : this.#keyring.authenticate,
      listen: { host, port, hosts: allowedHosts, origins: allowedOrigins, tls },
      routes,
      opensLater: true,
    });
    if (this.#isOpen) this.#http.opened();
    try {
      this.url = await this.#http.listen();
      if (!tls && !isLoopback(host)) this.#onConfigProblem(plainHttp(host));
      return this.url;
    } catch (error) {
      throw cannotListen(host, port, error as NodeJS.ErrnoException);
    }
  }

  opened(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#http?.opened();
    this.#onOpen();
  }

  get httpUsage() {
    const { exchanges, streams, sessions } = this.#http?.counts ?? { exchanges: 0, streams: 0, sessions: 0 };
    const answers = Object.values(this.#http?.figures().httpAnswers ?? {}).reduce((sum, each) => sum + each, 0);
    return { open: exchanges + streams, sessions, answers };
  }

  async serveStdio(input: Readable, output: Writable, client?: string): Promise<void> {
    const createStdioIngress = await this.#parts.stdio();
    const pipe = createStdioIngress({
      ...{ router: this.#router, clock: this.#clock, input, output, onProblem: this.#onProblem },
      principal: embedder,
      endpoint: { kind: 'all' },
      client,
    });
    this.#pipes.add(pipe);
    // The socket of a relay was paused after its first line.
    input.resume();
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
    return { swap, announce: () => this.#keysChanged() };
  }

  allow({ allowedHosts, allowedOrigins }: Pick<ListenSettings, 'allowedHosts' | 'allowedOrigins'>): void {
    this.#http?.allow({ hosts: allowedHosts, origins: allowedOrigins });
  }

  /** Ends the streams of revoked keys; other streams get their current roles. */
  #keysChanged(): void {
    if (this.#options.settings.auth === 'none' || this.#closing !== undefined) return;
    const now: CurrentPrincipal = (principal) => this.#keyring.now(principal);
    this.#http?.keysChanged(now);
    this.#router.keysChanged?.(now);
    this.#awaitExpiry();
  }

  #awaitExpiry(): void {
    const clock = this.#clock;
    this.#cancelExpiry?.();
    const next = this.#keyring.nextExpiryMs();
    if (next === undefined) return;
    // Wall time may jump, so the timer never waits longer than `expiryLookMs`.
    const waitMs = Math.min(Math.max(next - clock.date().getTime(), 0), expiryLookMs);
    this.#cancelExpiry = clock.at(clock.nowMs() + waitMs, () => this.#keysChanged());
  }

  close(drainMs = this.#options.settings.drainMs ?? drainMsDefault): Promise<void> {
    this.#closing ??= this.#close(drainMs);
    return this.#closing;
  }

  async #close(drainMs: number): Promise<void> {
    this.#cancelExpiry?.();
    // Readiness fails before requests are refused, so that a load balancer can redirect clients first.
    this.#onStopping();
    // Listen streams can get their result only while the ingresses are open.
    this.#router.close?.();
    await Promise.all([this.#http?.close(drainMs), ...[...this.#pipes].map((pipe) => pipe.close(drainMs))]);
    this.#options.host.showUnrouted(undefined);
    this.#onClosed();
  }

  /** Starts the metrics, which count calls from now on. */
  async #routes(): Promise<Routes> {
    const { host, settings, brokerFigures: broker } = this.#options;
    const createMetrics = await this.#parts.metrics();
    const metrics = createMetrics(host, { ingress: () => this.#figures(), broker });
    const readiness = new this.#parts.Readiness(this.#clock);
    this.#onOpen = () => readiness.opened(host.whenReady());
    if (this.#isOpen) this.#onOpen();
    this.#onStopping = () => readiness.stopping();
    // Metrics stay open while requests drain: those calls count, and `/metrics` is served until the port closes.
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

  /** Metrics name all servers, so a key with a role, or without a single callable server, may not read them. */
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
      hint: 'set listen.tls, or listen at 127.0.0.1 behind a reverse proxy that ends TLS, such as Caddy or nginx',
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
