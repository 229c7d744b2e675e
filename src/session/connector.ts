/**
 * Opens a session for a server definition: picks the transport, and owns the parts that all connections share (child processes,
 * remembered eras, and secrets to redact).
 * Invariant: after `close` no process and no connection that was opened here is left.
 */
import type { SecretValues } from '../config/secrets/secret-values.js';
import { isAttached, isStdio, type ServerSpec, type StdioServerSpec } from '../config/server-spec.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import { type Random, systemRandom } from '../kernel/random.js';
import { createRedactor, type Redactor } from '../kernel/redact.js';
import { neutralise } from '../kernel/terminal-text.js';
import type { AuthStatus } from '../policy/policy-events.js';
import { openAttached } from '../transports/attached/open-attached.js';
import { addressSecrets } from '../transports/environment.js';
import type { TokenSource } from '../transports/http/auth-token.js';
import { connectionsDefault, type HttpDeps } from '../transports/http/http-pool.js';
import { openHttpSse } from '../transports/http/http-sse-channel.js';
import { openStreamableHttp } from '../transports/http/streamable-http-channel.js';
import { loadUndici } from '../transports/http/undici.js';
import { ChildProcesses } from '../transports/stdio/child-processes.js';
import type { ReapReport } from '../transports/stdio/reaper.js';
import { openStdio } from '../transports/stdio/stdio-channel.js';
import type { Channel } from '../wire/channel.js';
import { type AuthProvider, staticHeaderProvider } from './auth/auth-provider.js';
import { AuthRecovery, withoutScheme } from './auth/auth-recovery.js';
import { hasReferences, ReferencedHeaders, withReferences } from './auth/referenced-headers.js';
import { createEraMemory, type EraMemory, httpSseEra } from './eras/eras.js';
import type { ClientIdentity } from './eras/server-era.js';
import { type OpenChannel, type OpenSessionOptions, openSession } from './open-session.js';
import { watchRotation } from './rotated-variables.js';
import type { Session, SessionHandlers } from './session.js';

/** Replaces processes and sockets in simulations on a fake clock. */
interface SimulatedTransports {
  readonly stdio: (spec: StdioServerSpec) => Promise<Channel>;
  readonly pool: NonNullable<HttpDeps['pool']>;
}

export interface ConnectorOptions {
  readonly client: ClientIdentity;
  /**
   * Folder of the journal of child processes. Without it, child processes may survive if Hostler and its death watch are both
   * killed.
   */
  readonly stateDir?: string | undefined;
  /** Files and folders that sandboxed servers never see, besides the state directory. */
  readonly hiddenPaths?: readonly string[];
  /** False: sandboxed servers get a new home at each start. Default: true. */
  readonly keepsHomes?: boolean;
  readonly ambient?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly eras?: EraMemory;
  readonly onProblem?: (error: unknown) => void;
  readonly redactor?: Redactor;
  /** Resolves references in variables and headers. Without it, such texts are used as written. */
  readonly secrets?: SecretValues | undefined;
  /** Reports the status of tokens (`authFor`). */
  readonly onAuth?: (server: string, status: AuthStatus) => void;
  readonly transports?: SimulatedTransports | undefined;
}

export interface ConnectOptions {
  readonly startTimeoutMs?: number;
  readonly signal?: CancelSignal;
  readonly handlers?: SessionHandlers;
  /** HTTP: source of tokens, besides the headers of the definition. */
  readonly tokens?: TokenSource;
  /** False: all requests belong to one client, which gets every request of the server. Default: true. */
  readonly isShared?: boolean;
  /** HTTP: number of concurrent calls, if larger than the default. */
  readonly concurrency?: number;
  /** stdio: called when the server has to restart, because a secret in its variables was rotated. */
  readonly onRotated?: () => void;
  /** stdio: called for each process that is started, also when no session is opened. */
  readonly onChannel?: (channel: Channel) => void;
}

const startTimeoutMsDefault = 30_000;

export class Connector {
  readonly clock: Clock;
  readonly #options: ConnectorOptions;
  readonly #random: Random;
  readonly #eras: EraMemory;
  readonly #redactor: Redactor;
  readonly #children: ChildProcesses;
  readonly #sessions = new Set<Session>();

  constructor(options: ConnectorOptions) {
    const { clock = systemClock, stateDir, ambient, onProblem, hiddenPaths = [], keepsHomes = true } = options;
    this.#options = options;
    this.#redactor = options.redactor ?? createRedactor();
    for (const secret of addressSecrets(ambient ?? process.env)) this.#redactor.know(secret);
    this.clock = clock;
    this.#random = options.random ?? systemRandom;
    this.#eras = options.eras ?? createEraMemory();
    this.#children = new ChildProcesses({
      clock,
      ...(stateDir === undefined ? {} : { stateDir }),
      ambient: ambient ?? process.env,
      hiddenPaths,
      keepsHomes,
      ...(onProblem === undefined ? {} : { onProblem }),
    });
  }

  /** Redacts and neutralises text from a server. */
  readonly clean = (text: string): string => neutralise(this.#redactor.redact(text));

  /** Stops processes that an earlier Hostler left when it was killed. Call it once, before the first connect. */
  reapLeftovers(): Promise<ReapReport> {
    return this.#children.reapLeftovers();
  }

  /** Processes that left the process group of this server and still run. */
  escapedOf(server: string): number {
    return this.#children.escapedOf(server);
  }

  /** Async, so that an invalid definition rejects instead of throwing. */
  async connect(given: ServerSpec, options: ConnectOptions = {}): Promise<Session> {
    const spec = await this.#resolved(given);
    for (const secret of secretsOf(spec)) this.#redactor.know(secret);
    const transport = 'transport' in spec ? spec.transport : undefined;
    const session = await this.#open({
      ...options,
      server: spec.name,
      open: this.#opener(spec, options),
      eraKey: eraKey(given),
      onlyEra: transport === 'http-sse' ? httpSseEra : undefined,
      mayFallBack: transport === 'auto',
    });
    const { secrets } = this.#options;
    const { onRotated: restart } = options;
    if (secrets && restart && 'command' in given && 'command' in spec && hasReferences(given.env))
      watchRotation({ clock: this.clock, secrets, session, written: given.env, started: spec.env, restart });
    return session;
  }

  /**
   * The tokens of a server: those of `provider`, and the headers of its definition. With references to secrets, a rotated secret is
   * used without a restart.
   */
  tokensOf(
    server: string,
    headers: Readonly<Record<string, string>>,
    provider: AuthProvider | undefined,
  ): AuthProvider {
    const { secrets, onProblem } = this.#options;
    if (!secrets || !hasReferences(headers)) return provider ?? staticHeaderProvider(headers);
    const references = new ReferencedHeaders({ server, headers, secrets, clock: this.clock, onProblem });
    return provider ? withReferences(provider, references) : references;
  }

  /** Resolves the references of a definition, for one start. */
  async #resolved(spec: ServerSpec): Promise<ServerSpec> {
    const { secrets } = this.#options;
    if (!secrets || isAttached(spec)) return spec;
    const resolve = async <T extends string | null>(field: 'env' | 'headers', texts: Readonly<Record<string, T>>) =>
      Object.fromEntries(
        await Promise.all(
          Object.entries(texts).map(async ([name, text]): Promise<[string, T | string]> => {
            const path = `mcpServers.${spec.name}.${field}.${name}`;
            return [name, text?.includes('${') ? await secrets.resolve(text, path) : text];
          }),
        ),
      );
    return isStdio(spec)
      ? { ...spec, env: await resolve('env', spec.env) }
      : { ...spec, headers: await resolve('headers', spec.headers) };
  }

  /** Returns the token source of this server, which also renews a refused token. Close it when the server is removed. */
  authFor(server: string, provider: AuthProvider): AuthRecovery {
    const { onProblem, onAuth } = this.#options;
    const onOutcome = onAuth && ((status: AuthStatus) => onAuth(server, status));
    return new AuthRecovery({ server, provider, clock: this.clock, secrets: this.#redactor, onProblem, onOutcome });
  }

  /** Opens a session over a channel of the embedder, such as the near end of `createMemoryLink`. */
  connectChannel(name: string, channel: Channel, options: ConnectOptions = {}): Promise<Session> {
    return this.#open({ ...options, server: name, open: () => Promise.resolve(channel) });
  }

  /** Ends every session, every child process, and the death watch. */
  async close(): Promise<void> {
    await Promise.all([...this.#sessions].map((session) => session.close()));
    await this.#children.closeAll();
  }

  async #open(
    options: ConnectOptions & Pick<OpenSessionOptions, 'server' | 'open' | 'eraKey' | 'onlyEra' | 'mayFallBack'>,
  ): Promise<Session> {
    let isClosed = false;
    const session = await openSession({
      ...options,
      client: this.#options.client,
      clock: this.clock,
      clean: this.clean,
      eras: options.eraKey === undefined ? undefined : this.#eras,
      startTimeoutMs: options.startTimeoutMs ?? startTimeoutMsDefault,
      onClosed: (closed) => {
        isClosed = true;
        this.#sessions.delete(closed);
      },
    });
    if (!isClosed) this.#sessions.add(session);
    return session;
  }

  #opener(spec: ServerSpec, { tokens, onChannel, concurrency = 0 }: ConnectOptions): OpenChannel {
    const { transports, onProblem = () => {} } = this.#options;
    if (isAttached(spec)) {
      const deps = { clock: this.clock, cleanText: this.clean, onProblem };
      return (_variant, limits) => openAttached(spec, deps, limits);
    }
    if (isStdio(spec)) {
      if (transports) return () => transports.stdio(spec);
      const { name: server, cwd, ...rest } = spec;
      const stdio = { server, ...rest, ...(cwd === undefined ? {} : { cwd }) };
      return async () => {
        const channel = await openStdio(stdio, { clock: this.clock, cleanText: this.clean, children: this.#children });
        onChannel?.(channel);
        return channel;
      };
    }
    // With fewer connections than `concurrency`, calls would wait here while the host counts them as running.
    const connections = Math.max(connectionsDefault, concurrency);
    const http = { server: spec.name, url: spec.url, headers: spec.headers, tokens, connections };
    const env = this.#options.ambient ?? process.env;
    const deps = { clock: this.clock, random: this.#random, env, ...(transports ? { pool: transports.pool } : {}) };
    return async (variant, limits): Promise<Channel> => {
      if (!transports) await loadUndici();
      return variant === 'http-sse' || spec.transport === 'http-sse'
        ? openHttpSse(http, deps, limits)
        : openStreamableHttp(http, deps);
    };
  }
}

/** The command or URL identifies a server, not its name. An attached server has no key: the next object may differ. */
function eraKey(spec: ServerSpec): string | undefined {
  if (isAttached(spec)) return undefined;
  return JSON.stringify(isStdio(spec) ? [spec.command, spec.args, spec.cwd] : [spec.url, spec.transport]);
}

const secretName = /key|token|secret|pass|auth|credential|cookie/i;

/** Secrets of a definition: all headers, and variables and URL parameters whose name looks like that of a secret. */
function secretsOf(spec: ServerSpec): string[] {
  const named = (pairs: Iterable<readonly [string, string | null]>) =>
    [...pairs].flatMap(([name, value]) => (value !== null && secretName.test(name) ? [value] : []));
  if (isAttached(spec)) return [];
  if (isStdio(spec)) return named(Object.entries(spec.env));
  const headers = Object.values(spec.headers).map(withoutScheme);
  // An invalid URL is refused later, when it is opened, with the name of the field.
  return URL.canParse(spec.url) ? [...headers, ...named(new URL(spec.url).searchParams)] : headers;
}
