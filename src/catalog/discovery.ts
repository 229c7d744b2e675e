/**
 * Describes all servers to somebody, the running ones by asking them and the others by what is known: the tools they listed
 * last, else their card. Also learns the tools of servers that nobody has ever seen run.
 * Not here: asking one server (catalogue.ts), reading cards (session/server-card.ts).
 *
 * Invariants: the whole ends by its deadline and never fails, unless that is no number; a server that hangs or fails costs the others nothing but its
 * place; a server that rests is not started unless that was asked for, and one that was stopped never is.
 */
import type { Clock } from '../kernel/clock.js';
import { deferred } from '../kernel/deferred.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import { waitMs } from '../policy/deadline.js';
import { embedder, type Principal } from '../policy/operation.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem } from '../session/lists.js';
import { isCardSource, type ServerCard, type ServerCards } from '../session/server-card.js';
import type { CatalogServer } from './catalog-server.js';
import { type HostTool, judgedTools, type PinnedText } from './pinned-tools.js';

export interface DiscoverOptions {
  readonly principal?: Principal;
  /** Start servers that rest. Without it they are described by what is known of them. */
  readonly wake?: boolean;
  /** For all servers together; 30 s when absent. */
  readonly deadlineMs?: number;
  /** Leave out the tools of servers that cannot be called now; the reason is told instead. */
  readonly hideUnavailable?: boolean;
}

export interface DiscoveredTool extends PinnedText {
  readonly server: string;
  readonly tool: string;
  /** The whole tool, parsed from `raw`: `inputSchema`, `outputSchema`, `annotations` and every other member. */
  readonly schema: Readonly<Record<string, unknown>>;
  /** Absent when the server is ready; otherwise its state, or the code of the error with which it refused to list. */
  readonly state?: string;
}

export type Discovered = DiscoveredTool | { readonly server: string; readonly error: HostError };

/** By server: settles when it was listed for the first time, or could not be. */
export type FirstListings = ReadonlyMap<string, Promise<void>>;

export interface DiscoveryParts {
  readonly clock: Clock;
  /** In their order. */
  readonly names: () => readonly string[];
  readonly serverOf: (name: string) => CatalogServer;
  /** Undefined when there is none. */
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly guards: () => readonly Guard[];
  /** Requests the tools of one server, as far as the principal may call them. */
  readonly catalogue: {
    tools(server: string, options: { principal: Principal; deadlineMs: number }): Promise<HostTool[]>;
    visible<Item extends ListedItem>(server: string, principal: Principal, items: readonly Item[]): Item[];
  };
  readonly pins: Pick<Pins, 'statusesOf' | 'recordOf' | 'isApprovedText'>;
  readonly cards: Pick<ServerCards, 'read'>;
  /** Whether anything is known of it. */
  readonly isSeen: (managed: CatalogServer) => boolean;
  /** Resolves when all its lists were read once in its run, or could not be. */
  readonly listsRead: (managed: CatalogServer) => Promise<void>;
  readonly onDenied: (request: GuardRequest) => void;
  readonly onProblem: (error: unknown) => void;
}

/** Servers that are asked at the same time, how long each may take, and all together. */
const discoverAtOnceMax = 8;
const discoverServerMs = 10_000;
const discoverTotalMs = 30_000;
/** Servers that are started at the same time only to learn their tools. */
const learnAtOnceMax = 2;
/** One that takes longer goes on, but no longer keeps the next one waiting; how many start at once the gate for starts bounds. */
const learnPlaceMs = 3_000;

export class Discovery {
  readonly #parts: DiscoveryParts;

  constructor(parts: DiscoveryParts) {
    this.#parts = parts;
  }

  /** In the order of their names, each server with its tools, or with the reason why there are none. */
  async discover(options: DiscoverOptions = {}): Promise<Discovered[]> {
    const { clock, names } = this.#parts;
    const untilMs = clock.nowMs() + waitMs(options.deadlineMs, discoverTotalMs);
    const all = names();
    const rows: Discovered[][] = all.map(() => []);
    await eachOf(all, discoverAtOnceMax, async (name, i) => {
      const deadlineAtMs = Math.min(clock.nowMs() + discoverServerMs, untilMs);
      rows[i] = await this.#withinTime(name, options, deadlineAtMs).catch((error: unknown) =>
        this.#failed(name, error),
      );
    });
    return rows.flat();
  }

  /**
   * The card of the server of that name. Where there is none, a URL, a path or a name ending in .json is read as it is.
   * Nothing is filtered.
   */
  async card(nameOrSource: string): Promise<ServerCard> {
    const { cards, serverOf, findServer } = this.#parts;
    if (!findServer(nameOrSource) && isCardSource(nameOrSource)) return cards.read(nameOrSource);
    const { card } = serverOf(nameOrSource).definition;
    if (card === undefined) throw noCard(nameOrSource);
    return cards.read(card);
  }

  /**
   * Starts each server of which nothing is known, once and a few at a time, and gives it back when its lists are known. By
   * server, when it was seen or could not be.
   */
  learnUnseen(): FirstListings {
    const seen = new Map(this.#unseen('registered').map((name) => [name, deferred()]));
    void eachOf([...seen], learnAtOnceMax, ([name, { resolve }]) => this.#placed(this.#learn(name).finally(resolve)));
    return new Map([...seen].map(([name, { promise }]) => [name, promise]));
  }

  /** Those that are being started anyway, and of which nothing is known: when each was seen or could not be. */
  seeStarting(): FirstListings {
    return new Map(this.#unseen('connecting').map((name) => [name, this.#see(name)]));
  }

  /** Resolves when that is over, or has taken so long that others are let past. */
  #placed(learning: Promise<void>): Promise<void> {
    const { clock, onProblem } = this.#parts;
    return new Promise((resolve) => {
      const cancel = clock.at(clock.nowMs() + learnPlaceMs, resolve);
      void learning.catch(onProblem).finally(() => {
        cancel();
        resolve();
      });
    });
  }

  #unseen(state: 'registered' | 'connecting'): string[] {
    const { names, serverOf, isSeen } = this.#parts;
    return names().filter((name) => {
      const managed = serverOf(name);
      return managed.definition.isEnabled && !isSeen(managed) && managed.supervisor.snapshot().state === state;
    });
  }

  /** Whatever keeps it from being seen is told elsewhere. */
  async #see(name: string): Promise<void> {
    const { clock, serverOf, listsRead } = this.#parts;
    try {
      const managed = serverOf(name);
      const untilMs = clock.nowMs() + managed.startMs;
      await managed.supervisor.acquire(untilMs, undefined, managed.startMs);
      await listsRead(managed);
    } catch {
      // It was tried.
    }
  }

  async #learn(name: string): Promise<void> {
    const { clock, serverOf, listsRead, onProblem } = this.#parts;
    try {
      const managed = serverOf(name);
      const untilMs = clock.nowMs() + managed.startMs;
      // A server is ready when its tools are known. Its start may take longer than a caller would wait.
      await managed.whileHeld(async () => {
        // Asked for each time: another one may have taken the name.
        while (!(await isReady(serverOf(name), untilMs, clock)));
        await listsRead(serverOf(name));
      });
    } catch (error) {
      // Stopped meanwhile, or the host was closed: nobody wants to know.
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
    const { clock, serverOf, catalogue, cards } = this.#parts;
    const { principal = embedder, wake = false, hideUnavailable = false } = options;
    if (!this.#mayList(name, options)) {
      // Who only looks around is shown less; who would start servers is refused.
      if (wake) this.#parts.onDenied({ principal, server: name, tool: undefined, action: 'list' });
      return [];
    }
    const managed = serverOf(name);
    let refusal = managed.supervisor.refusal();
    if (wake || managed.supervisor.snapshot().state === 'ready') {
      try {
        const tools = await catalogue.tools(name, { principal, deadlineMs: deadlineAtMs - clock.nowMs() });
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

  /** Its time is over: what can be said at once. For one that rests and is known, time is no matter. */
  #late(name: string, options: DiscoverOptions): Discovered[] {
    if (!this.#mayList(name, options)) return [];
    const { supervisor, tools } = this.#parts.serverOf(name);
    const isAsked = options.wake || supervisor.snapshot().state === 'ready' || tools.length === 0;
    return this.#known(name, options, isAsked ? late(name) : supervisor.refusal());
  }

  /** `refusal`: why it cannot be called now. */
  #known(
    name: string,
    { principal = embedder, hideUnavailable = false }: DiscoverOptions,
    refusal: HostError | undefined,
    tools?: readonly ListedItem[],
  ): Discovered[] {
    const managed = this.#parts.serverOf(name);
    const items = hideUnavailable && refusal ? [] : (tools ?? managed.tools);
    if (items.length === 0) return refusal ? [{ server: name, error: refusal }] : [];
    const { state } = managed.supervisor.snapshot();
    const mark = state === 'ready' ? refusal?.code : state;
    const visible = this.#parts.catalogue.visible(name, principal, items);
    // The pins were never compared with a card: its texts are approved only if they are those of the server.
    const judged = judgedTools(this.#parts.pins, name, visible, tools ? [] : managed.tools);
    return judged.map(({ key, ...tool }) => described({ server: name, name: key, ...tool }, mark));
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
    // Gone since the sweep began.
    return error.code === 'server_not_found' ? [] : [{ server, error }];
  }
}

/** At most `max` at a time, begun in their order. `run` must not reject. */
async function eachOf<T>(items: readonly T[], max: number, run: (item: T, i: number) => Promise<void>): Promise<void> {
  const rest = items.entries();
  const worker = async () => {
    for (const [i, item] of rest) await run(item, i);
  };
  await Promise.all(Array.from({ length: Math.min(max, items.length) }, worker));
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
    hint: 'the other servers are not affected; ask for the tools of this one alone to see why',
  });

const noCard = (server: string): HostError =>
  new HostError('invalid_spec', `server '${server}' has no card`, {
    server,
    field: `mcpServers.${server}.card`,
    reason: 'no_card',
    execution: 'not_executed',
    hint: 'give its URL or path as "card" in the definition of the server',
  });
