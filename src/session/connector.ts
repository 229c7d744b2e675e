/**
 * Server definition → session: picks the transport, and holds what all connections of one Hostler share — the keeper of
 * its children, what it has learnt about eras, and the secrets it must never show.
 */
import { isStdio, type ServerSpec } from '../config/server-spec.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import { type Random, systemRandom } from '../kernel/random.js';
import { createRedactor } from '../kernel/redact.js';
import { neutralise } from '../kernel/terminal-text.js';
import { openHttpSse } from '../transports/http/http-sse-channel.js';
import { openStreamableHttp } from '../transports/http/streamable-http-channel.js';
import { ChildKeeper } from '../transports/stdio/child-keeper.js';
import type { ReapReport } from '../transports/stdio/reaper.js';
import { openStdio } from '../transports/stdio/stdio-channel.js';
import type { Channel } from '../wire/channel.js';
import type { PeerHandlers } from '../wire/peer.js';
import type { ClientIdentity } from './client-identity.js';
import { createEraMemory } from './era-memory.js';
import { type OpenChannel, openSession } from './open-session.js';
import type { Session } from './session.js';
import type { EraMemory } from './versions.js';

export interface ConnectorOptions {
  readonly client: ClientIdentity;
  /** Where the journal of children lies; without it a crash of the whole machine's session may leave some behind. */
  readonly stateDir?: string | undefined;
  /** What children's environments are drawn from. */
  readonly ambient?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly eras?: EraMemory;
  readonly onProblem?: (error: unknown) => void;
}

export interface ConnectOptions {
  readonly startTimeoutMs?: number;
  readonly signal?: AbortSignal;
  readonly handlers?: PeerHandlers;
}

const startTimeoutMsDefault = 30_000;

export class Connector {
  readonly clock: Clock;
  readonly #options: ConnectorOptions;
  readonly #random: Random;
  readonly #eras: EraMemory;
  readonly #redactor = createRedactor();
  readonly #children: ChildKeeper;

  constructor(options: ConnectorOptions) {
    const { clock = systemClock, stateDir, ambient, onProblem } = options;
    this.#options = options;
    this.clock = clock;
    this.#random = options.random ?? systemRandom;
    this.#eras = options.eras ?? createEraMemory();
    this.#children = new ChildKeeper({
      clock,
      ...(stateDir === undefined ? {} : { stateDir }),
      ...(ambient === undefined ? {} : { ambient }),
      ...(onProblem === undefined ? {} : { onProblem }),
    });
  }

  /** Redacts and neutralises text that came from a server. */
  readonly clean = (text: string): string => neutralise(this.#redactor.redact(text));

  /** Takes down what an earlier Hostler left when it was killed. Call it once, before the first connect. */
  reapLeftovers(): Promise<ReapReport> {
    return this.#children.reapLeftovers();
  }

  connect(spec: ServerSpec, options: ConnectOptions = {}): Promise<Session> {
    for (const secret of secretsOf(spec)) this.#redactor.know(secret);
    return openSession({
      server: spec.name,
      open: this.#opener(spec),
      client: this.#options.client,
      clock: this.clock,
      clean: this.clean,
      eras: this.#eras,
      eraKey: eraKey(spec),
      startTimeoutMs: options.startTimeoutMs ?? startTimeoutMsDefault,
      signal: options.signal,
      handlers: options.handlers,
    });
  }

  /** Ends every child that still runs, and the watch over them. */
  close(): Promise<void> {
    return this.#children.closeAll();
  }

  #opener(spec: ServerSpec): OpenChannel {
    if (isStdio(spec)) {
      const { name: server, cwd, ...rest } = spec;
      const stdio = { server, ...rest, ...(cwd === undefined ? {} : { cwd }) };
      return () => openStdio(stdio, { clock: this.clock, cleanText: this.clean, children: this.#children });
    }
    const http = { server: spec.name, url: spec.url, headers: spec.headers };
    const deps = { clock: this.clock, random: this.#random };
    return (variant): Promise<Channel> =>
      variant === 'http-sse' || spec.transport === 'http-sse'
        ? openHttpSse(http, deps)
        : Promise.resolve(openStreamableHttp(http, deps));
  }
}

/** Another command or URL is another server, whatever it is called. */
const eraKey = (spec: ServerSpec): string =>
  JSON.stringify(isStdio(spec) ? [spec.command, spec.args, spec.cwd] : [spec.url, spec.transport]);

const secretName = /key|token|secret|pass|auth|credential|cookie/i;

function secretsOf(spec: ServerSpec): string[] {
  if (!isStdio(spec))
    return Object.values(spec.headers).map((value) => value.replace(/^(?:bearer|basic|token)\s+/i, ''));
  return Object.entries(spec.env).flatMap(([name, value]) => (secretName.test(name) ? [value] : []));
}
