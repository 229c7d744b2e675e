/**
 * A Host → MCP clients: joins keys, router, bridge and ingresses into one gateway. The composition root of this folder.
 * Not here: what each part does (gateway-parts.ts names them), the command around it (cli/up.ts).
 *
 * Invariants: nothing listens before the keys are known; closing ends clients before anything they use is taken away, and the
 * host itself is left to whoever made it.
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
 * What a host behind a gateway says it can do for a server: the clients of the gateway may, each in its own measure, and the
 * bridge answers for those that cannot.
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
  /** `none`: whoever reaches the address is the operator. */
  readonly auth: 'key' | 'none';
  readonly version: string;
  /** How long `close` waits for requests that are under way; 10 s when absent. */
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
  /** @internal For tests: another part in the place of one. It changes without notice. */
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
  /** From now on these keys and the local one. What is wrong with one is told. */
  replaceKeys(keys: Readonly<Record<string, unknown>>): void;
  /** The same, to be done later together with other changes: reads the keys now, and throws now if they cannot be read. */
  prepareKeys(keys: Readonly<Record<string, unknown>>): JointChange;
  /** From now on clients may use these names of ours, and pages of these origins. Where it listens stays as it is. */
  allow(names: Pick<ListenSettings, 'allowedHosts' | 'allowedOrigins'>): void;
  /**
   * Says at `/readyz` that it stops, refuses new requests, waits for what is under way up to `drainMs` (by default that of the
   * settings), then ends it and closes the port.
   */
  close(drainMs?: number): Promise<void>;
}

export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  const { host, settings, dataDir, clock = systemClock, random = systemRandom, onProblem = () => {} } = options;
  const parts = options.parts ?? defaultParts;
  host.learnTools();
  const local = dataDir === undefined || settings.auth === 'none' ? undefined : parts.readOrCreateLocalKey(dataDir);
  const onConfigProblem = options.onProblem ?? warnProcess;
  const keys = parts.parseKeys(settings.keys ?? {}, onConfigProblem);
  const keyring = new parts.Keyring({ clock, localKey: local?.key, keys });
  const keysNow: KeysNow = { isAny: hasMembers(settings.keys) };
  const router = parts.createRouter({
    upstreams: host,
    mayBePublic: () => !keysNow.isAny && !host.hasRoles,
    bridge: parts.createBridge({ clock, random }),
    clock,
    serverInfo: { name: 'hostler', version: settings.version },
    onProblem,
  });
  return new JoinedGateway({
    ...{ host, settings, clock, random, onProblem, onConfigProblem, parts, router, keyring, keysNow },
    opensLater: options.opensLater ?? false,
    brokerFigures: options.brokerFigures,
    key: local?.key,
    isNewKey: local?.isNew ?? false,
    keyFile: local && path.join(dataDir as string, 'key'),
  });
}

/** Whether the configuration has keys, usable or not. The local key does not count: it is the operator's alone. */
interface KeysNow {
  isAny: boolean;
}

const hasMembers = (keys: Readonly<Record<string, unknown>> = {}): boolean => Object.keys(keys).length > 0;

interface Joined
  extends Required<Pick<GatewayOptions, 'host' | 'settings' | 'clock' | 'random' | 'onProblem' | 'parts'>> {
  readonly opensLater: boolean;
  /** What is wrong with the settings is never silent: a key that cannot be used, an address that others can listen in on. */
  readonly onConfigProblem: (error: unknown) => void;
  readonly brokerFigures: GatewayOptions['brokerFigures'];
  readonly router: Router;
  readonly keyring: Keyring;
  readonly keysNow: KeysNow;
  readonly key: string | undefined;
  readonly isNewKey: boolean;
  readonly keyFile: string | undefined;
}

class JoinedGateway implements Gateway {
  readonly #joined: Joined;
  #http: HttpIngress | undefined;
  readonly #pipes = new Set<StdioIngress>();
  #onStopping: () => void = () => {};
  #onClosed: () => void = () => {};
  #url: string | undefined;
  #closing: Promise<void> | undefined;
  #cancelExpiry: Cancel | undefined;
  #isOpen: boolean;
  #onOpen: () => void = () => {};

  constructor(joined: Joined) {
    this.#joined = joined;
    this.#isOpen = !joined.opensLater;
    const { host, router } = joined;
    host.showUnrouted((server) => router.unroutedOf?.(server));
    this.#awaitExpiry();
  }

  get url(): string | undefined {
    return this.#url;
  }

  get key(): string | undefined {
    return this.#joined.key;
  }

  get isNewKey(): boolean {
    return this.#joined.isNewKey;
  }

  get keyFile(): string | undefined {
    return this.#joined.keyFile;
  }

  async listen(): Promise<string> {
    const { parts, router, clock, random, keyring, settings, onProblem, onConfigProblem } = this.#joined;
    const { host, port, allowedHosts, allowedOrigins } = settings.listen;
    const [createHttpIngress, routes] = await Promise.all([parts.http(), this.#routes()]);
    this.#http = await createHttpIngress({
      ...{ router, clock, random, onProblem },
      authenticate: settings.auth === 'none' ? () => embedder : (header) => keyring.authenticate(header),
      listen: { host, port, hosts: allowedHosts, origins: allowedOrigins },
      routes,
      isOpen: () => this.#isOpen,
    });
    try {
      this.#url = await this.#http.listen();
      if (!isLoopback(host)) onConfigProblem(plainHttp(host));
      return this.#url;
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
    const { parts, router, clock, onProblem } = this.#joined;
    const createStdioIngress = await parts.stdio();
    const pipe = createStdioIngress({
      ...{ router, clock, input, output, onProblem },
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
    const { keyring, keysNow, parts, onConfigProblem } = this.#joined;
    const read = parts.parseKeys(keys, onConfigProblem);
    const swap = () => {
      keyring.replace(read);
      keysNow.isAny = hasMembers(keys);
    };
    return { swap, announce: () => this.#rekeyed() };
  }

  allow({ allowedHosts, allowedOrigins }: Pick<ListenSettings, 'allowedHosts' | 'allowedOrigins'>): void {
    this.#http?.allow({ hosts: allowedHosts, origins: allowedOrigins });
  }

  /** Whoever has no key any more hears nothing more; whoever has another role, what that one may hear. */
  #rekeyed(): void {
    const { keyring, router, settings } = this.#joined;
    if (settings.auth === 'none' || this.#closing !== undefined) return;
    const now: PrincipalNow = (principal) => keyring.now(principal);
    this.#http?.rekeyed(now);
    router.rekeyed?.(now);
    this.#awaitExpiry();
  }

  #awaitExpiry(): void {
    const { clock, keyring } = this.#joined;
    this.#cancelExpiry?.();
    const next = keyring.nextExpiryMs();
    if (next === undefined) return;
    // Wall time may jump: looked at again meanwhile.
    const waitMs = Math.min(Math.max(next - clock.date().getTime(), 0), expiryLookMs);
    this.#cancelExpiry = clock.at(clock.nowMs() + waitMs, () => this.#rekeyed());
  }

  close(drainMs = this.#joined.settings.drainMs ?? drainMsDefault): Promise<void> {
    this.#closing ??= this.#close(drainMs);
    return this.#closing;
  }

  async #close(drainMs: number): Promise<void> {
    this.#cancelExpiry?.();
    // Before anything is refused, so that a load balancer can send clients elsewhere first.
    this.#onStopping();
    // First, while there is somebody to tell: who listens hears that it is over.
    this.#joined.router.close?.();
    await Promise.all([this.#http?.close(drainMs), ...[...this.#pipes].map((pipe) => pipe.close(drainMs))]);
    this.#joined.host.showUnrouted(undefined);
    this.#onClosed();
  }

  /** Calls are counted from here on; what reads the counts is loaded when somebody asks for them. */
  async #routes(): Promise<Routes> {
    const { host, parts, clock, settings, brokerFigures: broker } = this.#joined;
    const createMetrics = await parts.metrics();
    const metrics = createMetrics(host, { ingress: () => this.#figures(), broker });
    const readiness = new parts.Readiness(clock);
    this.#onOpen = () => readiness.opened(host.whenAllListed());
    if (this.#isOpen) this.#onOpen();
    this.#onStopping = () => readiness.stopping();
    // Calls that are drained still count, and metrics can be read until the port closes.
    this.#onClosed = () => metrics.close();
    const shown = async () => ({ status: 200, contentType: metrics.contentType, body: await metrics.text() });
    const checksHost = settings.auth === 'none';
    const mayRead = (principal: Principal) => this.#mayReadMetrics(principal);
    return new Map<string, Route>([
      ['/healthz', { isPublic: true, answer: parts.healthz }],
      ['/readyz', { isPublic: true, answer: readiness.readyz }],
      ['/metrics', { isPublic: false, checksHost, mayRead, answer: shown }],
    ]);
  }

  /** Metrics name all servers: not for a role, which may see some of them only, nor for a key that may call nothing. */
  #mayReadMetrics(principal: Principal): boolean {
    const { host } = this.#joined;
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
        hint: 'stop whoever has it, or take any free one with --port 0',
      });
    case 'EACCES':
      return new HostError('invalid_spec', `port ${port} of ${host} may not be used by this user`, {
        ...facts,
        hint: 'take one above 1023, or any free one with --port 0',
      });
    default:
      return new HostError('invalid_spec', `hostler cannot listen at ${host}, port ${port} (${code})`, {
        ...facts,
        field: '--host',
        hint: 'give an address of this machine with --host, such as 127.0.0.1',
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
