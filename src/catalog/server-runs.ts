/**
 * Keeps the listing and the subscriptions of each running server up to date: reads all lists except tools, follows their
 * changes, and subscribes to resources.
 * Not here: reading tools (list-reader.ts), storing lists (listings.ts), subscribers (subscriptions.ts), start and end of a run
 * (supervisor/).
 *
 * Invariants: this work delays no call and does not count as a call. Only offered lists are requested. A failure keeps the
 * known lists and does not end the run. One subscribe request per resource is open at a time. A run belongs to the server that
 * it was opened for, never to another server of the same name.
 */
import type { Clock } from '../kernel/clock.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import type { ServerFacts } from '../session/eras/server-era.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import { resultOf } from '../session/rpc-response.js';
import type { Session } from '../session/session.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import { memberBytes, memberText } from '../wire/json-members.js';
import { NOTIFICATION } from '../wire/methods.js';
import type { CatalogServer, KnownFacts } from './catalog-server.js';
import { ListReader, readMsMax } from './list-reader.js';
import { checkAhead } from './list-repair.js';
import type { Listings } from './listings.js';
import { type ListenParts, ServerListenStream } from './server-listen-stream.js';

interface RunContext {
  readonly clock: Clock;
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly listings: Pick<Listings, 'learnFacts' | 'learnList' | 'save' | 'changed'>;
  /** Subscribed URIs. `target`: server name, or key of an instance. */
  readonly uris: (target: string) => readonly string[];
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

export class ServerRuns {
  readonly #context: RunContext;
  readonly #bySession = new WeakMap<Session, ServerRun>();
  readonly #byName = new Map<string, ServerRun>();

  constructor(context: RunContext) {
    this.#context = context;
  }

  /**
   * Call it when a session was opened, before its first request. `instance`: key of a client's instance, which uses the lists
   * of the shared server. `announce`: handles a notification as if the server had sent it.
   */
  opened(server: string, session: Session, announce: (method: string) => void, instance?: string): ServerRun {
    const owner = instance === undefined ? this.#context.findServer(server) : undefined;
    const run = new ServerRun(this.#context, session, instance ?? server, owner, announce);
    this.#bySession.set(session, run);
    run.begin();
    return run;
  }

  of({ supervisor }: Pick<CatalogServer, 'supervisor'>): ServerRun | undefined {
    const session = supervisor.current?.connection;
    return session && this.#bySession.get(session);
  }

  observe(event: SupervisorEvent): void {
    if (event.kind !== 'state') return;
    const { server, from, to } = event;
    if (isUp(from) && isUp(to)) return;
    if (isUp(to)) this.#ready(server);
    else if (isUp(from)) this.#over(server);
    if (to === 'registered' && this.#context.uris(server).length > 0) this.#restart(server);
    this.#context.listings.changed(server);
  }

  #ready(name: string): void {
    const server = this.#context.findServer(name);
    const session = server?.supervisor.current?.connection;
    const run = session && this.#bySession.get(session);
    if (!server || !run) return;
    this.#context.listings.learnFacts(server, ownFacts(session.facts), run.offeredLists);
    this.#byName.set(name, run);
    run.ready();
  }

  #over(name: string): void {
    this.#byName.get(name)?.end();
    this.#byName.delete(name);
  }

  /** Starts an idle server with subscribers again. */
  #restart(name: string): void {
    // In a later tick, because the state has not settled yet.
    queueMicrotask(() => {
      const server = this.#context.findServer(name);
      if (server?.supervisor.snapshot().state === 'registered') server.supervisor.begin();
    });
  }
}

const isUp = (state: string): boolean => state === 'ready' || state === 'suspect';

/** Copies: the buffers are views of a whole response. */
const ownFacts = ({ era, version, capabilities, serverInfo, instructions }: ServerFacts): KnownFacts => ({
  era,
  version,
  capabilities: Buffer.from(capabilities),
  serverInfo: serverInfo && Buffer.from(serverInfo),
  instructions,
});

const subscribeMsMax = 10_000;

/** A Map, not an object: a server may send a notification named like an inherited property. */
const changedLists: ReadonlyMap<string, readonly ListMethod[]> = new Map([
  [NOTIFICATION.promptsChanged, ['prompts/list']],
  [NOTIFICATION.resourcesChanged, ['resources/list', 'resources/templates/list']],
]);

const listChanges: readonly {
  readonly capability: string;
  readonly member: ListenParts['listChanges'][number];
  readonly notification: string;
}[] = [
  { capability: 'tools', member: 'toolsListChanged', notification: NOTIFICATION.toolsChanged },
  { capability: 'prompts', member: 'promptsListChanged', notification: NOTIFICATION.promptsChanged },
  { capability: 'resources', member: 'resourcesListChanged', notification: NOTIFICATION.resourcesChanged },
];

export class ServerRun {
  readonly #context: RunContext;
  readonly #session: Session;
  /** Server name, or key of the instance. */
  readonly #target: string;
  /** Undefined for an instance, which uses the lists of the shared server. */
  readonly #owner: CatalogServer | undefined;
  readonly #announce: (method: string) => void;
  readonly #readers = new Map<ListMethod, ListReader>();
  /** Set for modern servers only. */
  readonly #listen: ServerListenStream | undefined;
  /** Legacy servers: resources whose subscription the server has accepted. */
  readonly #subscribed = new Set<string>();
  readonly #mutex = new KeyedMutex();
  #reading: Promise<void> | undefined;
  #isReady = false;
  #isRead = false;

  constructor(
    context: RunContext,
    session: Session,
    target: string,
    owner: CatalogServer | undefined,
    announce: (method: string) => void,
  ) {
    this.#context = context;
    this.#session = session;
    this.#target = target;
    this.#owner = owner;
    this.#announce = announce;
    const { capabilities, era } = session.facts;
    if (owner) for (const method of offeredLists(capabilities)) this.#readers.set(method, this.#reader(method, owner));
    if (era === 'modern') this.#listen = this.#listenStream();
  }

  /** Opens the listen stream before the first read, so that no change in between is missed. */
  begin(): void {
    this.#listen?.update();
  }

  ready(): void {
    this.#isReady = true;
    this.#reading = this.#readAll();
    if (!this.#listen) this.#subscribeAll();
  }

  get offeredLists(): readonly ListMethod[] {
    return [...this.#readers.keys()];
  }

  /** Resolves when each list was read once or has failed. */
  get listsRead(): Promise<void> {
    return this.#reading ?? Promise.resolve();
  }

  onNotification(method: string, params: Buffer | undefined): void {
    if (method === NOTIFICATION.acknowledged) this.#listen?.acknowledged(params);
    // No list was read before `ready`.
    if (!this.#isReady) return;
    for (const list of changedLists.get(method) ?? []) this.#readers.get(list)?.changed(this.#session);
  }

  /** Call it when a legacy server lost the session: subscriptions and notifications were lost with it. */
  renewed(): void {
    this.#subscribed.clear();
    if (!this.#isReady) return;
    this.#subscribeAll();
    this.#announceChanges();
  }

  /** Hostler has another account at the server: every list may differ, also one without change notifications. */
  accountChanged(): void {
    if (!this.#isReady || !this.#owner) return;
    const { capabilities } = this.#session.facts;
    for (const { capability, notification } of listChanges)
      if (memberBytes(capabilities, capability) !== undefined) this.#announce(notification);
  }

  /** Resolves when the server has accepted the subscription. */
  async subscribe(uri: string): Promise<void> {
    if (this.#listen) await this.#listen.subscribed(uri);
    else await this.#updateSubscription(uri);
  }

  /** Call it when the last subscriber of the resource has left. */
  unsubscribe(uri: string): void {
    if (this.#listen) this.#listen.update();
    else this.#updateSubscription(uri).catch(this.#context.onProblem);
  }

  end(): void {
    this.#listen?.stop();
  }

  #reader(method: ListMethod, owner: CatalogServer): ListReader {
    const { clock, listings, findServer, onProblem } = this.#context;
    const begin =
      () =>
      async ({ items, ttlMs, cacheScope }: ServerList) => {
        await checkAhead(method, items);
        if (findServer(owner.definition.name) !== owner) return;
        listings.learnList(owner, method, { items, ttlMs, isPublic: cacheScope === 'public' });
        if (this.#isRead) listings.save(owner);
      };
    return new ListReader(method, clock, begin, onProblem);
  }

  /** Reads one list after the other, so that calls are not delayed. */
  async #readAll(): Promise<void> {
    const { clock, listings, onProblem } = this.#context;
    for (const reader of this.#readers.values()) {
      if (this.#session.closedBy) break;
      try {
        await reader.readOnce(this.#session, { deadlineAtMs: clock.nowMs() + readMsMax });
      } catch (error) {
        // The supervisor reports the end of the run.
        if (!this.#session.closedBy) onProblem(error);
      }
    }
    this.#isRead = true;
    if (this.#owner) listings.save(this.#owner);
  }

  #listenStream(): ServerListenStream {
    const { clock, clean, onProblem } = this.#context;
    return new ServerListenStream({
      ...{ clock, session: this.#session, clean, onProblem },
      listChanges: this.#offeredChanges().map(({ member }) => member),
      uris: () => this.#context.uris(this.#target),
      onGap: () => this.#announceChanges(),
    });
  }

  /** Notifications may have been missed: announces every list that has change notifications. */
  #announceChanges(): void {
    for (const { notification } of this.#offeredChanges()) this.#announce(notification);
  }

  #offeredChanges(): typeof listChanges {
    if (!this.#owner) return [];
    return listChanges.filter(({ capability }) => {
      const object = memberBytes(this.#session.facts.capabilities, capability);
      return object !== undefined && memberText(object, 'listChanged') === 'true';
    });
  }

  #subscribeAll(): void {
    for (const uri of this.#context.uris(this.#target)) this.#updateSubscription(uri).catch(this.#context.onProblem);
  }

  /** Legacy servers: subscribes if the resource has subscribers now, otherwise unsubscribes. */
  #updateSubscription(uri: string): Promise<void> {
    return this.#mutex.runExclusive(uri, async () => {
      const { clock, uris, clean } = this.#context;
      const session = this.#session;
      const isWanted = uris(this.#target).includes(uri);
      if (isWanted === this.#subscribed.has(uri) || session.closedBy) return;
      const method = isWanted ? 'resources/subscribe' : 'resources/unsubscribe';
      if (!isWanted) this.#subscribed.delete(uri);
      const params = JSON.stringify({ uri });
      const answer = await session.request(method, params, { deadlineAtMs: clock.nowMs() + subscribeMsMax });
      resultOf(answer, session.server, method, clean);
      if (isWanted) this.#subscribed.add(uri);
    });
  }
}

/** Tools are missing here: they are read before a run is ready. */
function offeredLists(capabilities: Buffer): ListMethod[] {
  const has = (capability: string) => memberBytes(capabilities, capability) !== undefined;
  return [
    ...(has('prompts') ? (['prompts/list'] as const) : []),
    ...(has('resources') ? (['resources/list', 'resources/templates/list'] as const) : []),
  ];
}
