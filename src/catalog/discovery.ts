/**
 * Describes all servers: a running server by its present list, others by their last list or card. Also starts each server that
 * was never listed, once, to read its lists.
 * Not here: the list of one server (host/list-operations.ts), reading cards (session/server-card.ts).
 *
 * Invariants: `discover` ends by its deadline and rejects only if `deadlineMs` is not a number. A server that hangs or fails
 * delays no other. An idle server is started only on request, a stopped one never.
 */
import type { Clock } from '../kernel/clock.js';
import { deferred } from '../kernel/deferred.js';
import { eachOf } from '../kernel/each-of.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import { embedder, type Principal, waitMs } from '../policy/operation.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem } from '../session/lists.js';
import { isCardSource, type ServerCard, type ServerCards } from '../session/server-card.js';
import type { CatalogServer } from './catalog-server.js';
import { type HostTool, type PinnedText, pinnedTools } from './pinned-tools.js';

export interface DiscoverOptions {
  readonly principal?: Principal;
  /** Starts idle servers. Without it they are described by their last list. */
  readonly wake?: boolean;
  /** Time limit for all servers together; default 30 s. */
  readonly deadlineMs?: number;
  /** For a server that cannot be called now, returns the error instead of its tools. */
  readonly hideUnavailable?: boolean;
}

export interface DiscoveredTool extends PinnedText {
  readonly server: string;
  readonly tool: string;
  readonly schema: Readonly<Record<string, unknown>>;
  /** The state of a server that is not ready, or the code of its list error. */
  readonly state?: string;
}

export type Discovered = DiscoveredTool | { readonly server: string; readonly error: HostError };

/** Per server: a promise that settles when its first listing has succeeded or failed. */
export type FirstListings = ReadonlyMap<string, Promise<void>>;

export interface DiscoveryParts {
  readonly clock: Clock;
  readonly names: () => readonly string[];
  readonly serverOf: (name: string) => CatalogServer;
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly guards: () => readonly Guard[];
  /** Lists the tools of one server that the principal may call. */
  readonly listOperations: {
    tools(server: string, options: { principal: Principal; deadlineMs: number }): Promise<HostTool[]>;
    visible<Item extends ListedItem>(server: string, principal: Principal, items: readonly Item[]): Item[];
  };
  readonly pins: Pick<Pins, 'statusesOf' | 'recordOf' | 'isApprovedText'>;
  readonly cards: Pick<ServerCards, 'read'>;
  readonly wasListed: (managed: CatalogServer) => boolean;
  /** Resolves when every list of the run was read or has failed. */
  readonly listsRead: (managed: CatalogServer) => Promise<void>;
  readonly onDenied: (request: GuardRequest) => void;
  readonly onProblem: (error: unknown) => void;
}

/** Servers listed concurrently, and the time limits for one server and for all. */
const discoverConcurrencyMax = 8;
const discoverServerMs = 10_000;
const discoverTotalMs = 30_000;
/** Bound of first listings that run at once. The start gate decides how many of these servers start together. */
const learnConcurrencyMax = 64;
/** After this time the next first listing may begin; the slow one continues. The start gate still limits concurrent starts. */
const learnSlotMs = 3_000;

export class Discovery {
  readonly #parts: DiscoveryParts;

  constructor(parts: DiscoveryParts) {
    this.#parts = parts;
  }

  /** Returns the tools of each server, or its error, sorted by server name. */
  async discover(options: DiscoverOptions = {}): Promise<Discovered[]> {
    const { clock, names } = this.#parts;
    const untilMs = clock.nowMs() + waitMs(options.deadlineMs, discoverTotalMs);
    const all = names();
    const rows: Discovered[][] = all.map(() => []);
    await eachOf(all, discoverConcurrencyMax, async (name, i) => {
      const deadlineAtMs = Math.min(clock.nowMs() + discoverServerMs, untilMs);
      rows[i] = await this.#withinTime(name, options, deadlineAtMs).catch((error: unknown) =>
        this.#failed(name, error),
      );
    });
    return rows.flat();
  }

  /**
   * Reads the card of the named server. If no server has that name, the argument is a URL, a path, or a file name ending in
   * .json. The card is returned unfiltered.
   */
  async card(nameOrSource: string): Promise<ServerCard> {
    const { cards, serverOf, findServer } = this.#parts;
    if (!findServer(nameOrSource) && isCardSource(nameOrSource)) return cards.read(nameOrSource);
    const { card } = serverOf(nameOrSource).definition;
    if (card === undefined) throw noCard(nameOrSource);
    return cards.read(card);
  }

  /** Starts each server that was never listed, a few at a time, and releases it when its lists are known. */
  listUnlisted(): FirstListings {
    const seen = new Map(this.#unlisted('registered').map((name) => [name, deferred()]));
    void eachOf([...seen], learnConcurrencyMax, ([name, { resolve }]) =>
      this.#withSlot(this.#startAndList(name).finally(resolve)),
    );
    return new Map([...seen].map(([name, { promise }]) => [name, promise]));
  }

  /** First listings of the servers that are starting already. */
  listStarting(): FirstListings {
    return new Map(this.#unlisted('connecting').map((name) => [name, this.#awaitListing(name)]));
  }

  /** Resolves when the listing has settled, or after `learnSlotMs`. */
  #withSlot(learning: Promise<void>): Promise<void> {
    const { clock, onProblem } = this.#parts;
    return new Promise((resolve) => {
      const cancel = clock.at(clock.nowMs() + learnSlotMs, resolve);
      void learning.catch(onProblem).finally(() => {
        cancel();
        resolve();
      });
    });
  }

  #unlisted(state: 'registered' | 'connecting'): string[] {
    const { names, serverOf, wasListed } = this.#parts;
    return names().filter((name) => {
      const managed = serverOf(name);
      return managed.definition.isEnabled && !wasListed(managed) && managed.supervisor.snapshot().state === state;
    });
  }

  async #awaitListing(name: string): Promise<void> {
    const { clock, serverOf, listsRead } = this.#parts;
    try {
      const managed = serverOf(name);
      const untilMs = clock.nowMs() + managed.startMs;
      await managed.supervisor.acquire(untilMs, undefined, managed.startMs);
      await listsRead(managed);
    } catch {
      // The supervisor reports the failed start.
    }
  }

  async #startAndList(name: string): Promise<void> {
    const { clock, serverOf, listsRead, onProblem } = this.#parts;
    try {
      const managed = serverOf(name);
      const untilMs = clock.nowMs() + managed.startMs;
      // A start may outlast one `acquire`, so `reconnecting` is retried until the start timeout.
      await managed.keepRunningDuring(async () => {
        // Look up the name each time: another server may have taken it.
        while (!(await isReady(serverOf(name), untilMs, clock)));
        await listsRead(serverOf(name));
      });
    } catch (error) {
      // The server was stopped or the host closed, which is not a problem.
      if (!isHostError(error) || error.code !== 'server_stopped') onProblem(error);
    }
  }

  #withinTime(name: string, options: DiscoverOptions, deadlineAtMs: number): Promise<Discovered[]> {
    const { clock } = this.#parts;
    if (clock.nowMs() >= deadlineAtMs) return Promise.resolve(this.#late(name, options));
    return new Promise((resolve, reject) => {
      const cancel = clock.at(deadlineAtMs, () => {
        try {
          resolve(this.#late(name, options));
        } catch (error) {
          reject(error);
        }
      });
      void this.#describe(name, options, deadlineAtMs).then(resolve, reject).finally(cancel);
    });
  }

  async #describe(name: string, options: DiscoverOptions, deadlineAtMs: number): Promise<Discovered[]> {
    const { clock, serverOf, listOperations, cards } = this.#parts;
    const { principal = embedder, wake = false, hideUnavailable = false } = options;
    if (!this.#mayList(name, options)) {
      // Only an attempt to start a server is recorded as denied.
      if (wake) this.#parts.onDenied({ principal, server: name, tool: undefined, action: 'list' });
      return [];
    }
    const managed = serverOf(name);
    let refusal = managed.supervisor.refusal();
    if (wake || managed.supervisor.snapshot().state === 'ready') {
      try {
        const tools = await listOperations.tools(name, { principal, deadlineMs: deadlineAtMs - clock.nowMs() });
        return tools.map((tool) => described(tool, undefined));
      } catch (error) {
        if (!isHostError(error)) throw error;
        refusal = error;
      }
    }
    const { card } = managed.definition;
    const isHidden = hideUnavailable && refusal !== undefined;
    if (isHidden || managed.tools.length > 0 || card === undefined) return this.#known(name, options, refusal);
    const { tools } = await cards.read(card);
    return this.#known(name, options, refusal, tools);
  }

  /** Answers from the last list after the deadline. An idle server with known tools gets no timeout error. */
  #late(name: string, options: DiscoverOptions): Discovered[] {
    if (!this.#mayList(name, options)) return [];
    const { supervisor, tools } = this.#parts.serverOf(name);
    const needsTime = options.wake || supervisor.snapshot().state === 'ready' || tools.length === 0;
    return this.#known(name, options, needsTime ? late(name) : supervisor.refusal());
  }

  /** `refusal`: why the server cannot be called now. */
  #known(
    name: string,
    { principal = embedder, hideUnavailable = false }: DiscoverOptions,
    refusal: HostError | undefined,
    tools?: readonly ListedItem[],
  ): Discovered[] {
    const managed = this.#parts.serverOf(name);
    const { state, isOff } = managed.supervisor.snapshot();
    const items = isOff || (hideUnavailable && refusal) ? [] : (tools ?? managed.tools);
    if (items.length === 0) return refusal ? [{ server: name, error: refusal }] : [];
    const mark = state === 'ready' ? refusal?.code : state;
    const visible = this.#parts.listOperations.visible(name, principal, items);
    // The tools of a card were never checked against the pins: only a text that equals the approved one counts as approved.
    const pinned = pinnedTools(this.#parts.pins, name, visible, tools ? [] : managed.tools);
    return pinned.map(({ key, ...tool }) => described({ server: name, name: key, ...tool }, mark));
  }

  #mayList(server: string, { principal = embedder }: DiscoverOptions): boolean {
    return denial(this.#parts.guards, { principal, server, tool: undefined, action: 'list' }) === undefined;
  }

  #failed(server: string, error: unknown): Discovered[] {
    if (!isHostError(error)) {
      this.#parts.onProblem(error);
      const message = `server '${server}' could not be described`;
      return [{ server, error: new HostError('protocol_error', message, { server, cause: error }) }];
    }
    // The server was removed after `discover` began.
    return error.code === 'server_not_found' ? [] : [{ server, error }];
  }
}

async function isReady({ supervisor }: CatalogServer, untilMs: number, clock: Clock): Promise<boolean> {
  try {
    await supervisor.acquire(untilMs);
    return true;
  } catch (error) {
    if (!isHostError(error) || error.code !== 'reconnecting' || clock.nowMs() >= untilMs) throw error;
    return false;
  }
}

function described({ server, name: tool, raw, pin, isUnapproved }: HostTool, state: string | undefined): Discovered {
  const schema = JSON.parse(raw.toString('utf8')) as DiscoveredTool['schema'];
  return { server, tool, schema, raw, pin, isUnapproved, ...(state === undefined ? {} : { state }) };
}

const late = (server: string): HostError =>
  new HostError('timeout', `server '${server}' was not described in time`, {
    server,
    reason: 'discover_deadline',
    hint: 'the other servers are not affected; list the tools of this server alone to see why',
  });

const noCard = (server: string): HostError =>
  new HostError('invalid_spec', `server '${server}' has no card`, {
    server,
    field: `mcpServers.${server}.card`,
    reason: 'no_card',
    execution: 'not_executed',
    hint: 'set "card" to its URL or path in the definition of the server',
  });
