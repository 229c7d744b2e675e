/**
 * Keeps the listing and the subscriptions of one run of a server up to date: reads its lists, follows their changes, and
 * subscribes to resources.
 * Not here: reading one list (list-reader.ts), storing lists (listings.ts), subscribers (subscriptions.ts).
 *
 * Invariants: except for the first tools of a session, this work delays no call and does not count as a call. Only offered lists are requested;
 * tools always are. A failure keeps the known lists and does not end the run. A run belongs to the server that it was opened
 * for, never to another server of the same name.
 */
import type { Clock } from '../kernel/clock.js';
import type { ServerFacts } from '../session/eras/server-era.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';
import { memberBytes, memberText } from '../wire/json-members.js';
import { NOTIFICATION } from '../wire/methods.js';
import type { CatalogServer, KnownFacts } from './catalog-server.js';
import { ListReader } from './list-reader.js';
import { checkAhead } from './list-repair.js';
import type { Listings } from './listings.js';
import { type ListenParts, ServerListenStream } from './server-listen-stream.js';
import { ServerSubscriptions } from './server-subscriptions.js';
import type { SessionWork } from './session-retry.js';

type TakeList = (list: ServerList) => Promise<void> | void;

export interface RunContext {
  readonly clock: Clock;
  readonly throttle: SessionWork['throttle'];
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly listings: Pick<Listings, 'learnFacts' | 'learnList' | 'save' | 'changed'>;
  /** Called when a read of the server's tools begins; the returned function takes the list. */
  readonly beginToolRead: (server: string) => TakeList;
  readonly onToolsFailed: (server: string, error: unknown) => void;
  /** Drops cached answers: they belong to an older session. */
  readonly forgetAnswers: (server: string) => void;
  /** Subscribed URIs. `target`: server name, or key of an instance. */
  readonly uris: (target: string) => readonly string[];
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

/** A Map, not an object: a server may send a notification named like an inherited property. */
const changedLists: ReadonlyMap<string, readonly ListMethod[]> = new Map([
  [NOTIFICATION.toolsChanged, ['tools/list']],
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
  /** Undefined for an instance, which uses the lists of the shared server, but reads the tools itself too. */
  readonly #owner: CatalogServer | undefined;
  readonly #announce: (method: string) => void;
  /** Created when a list is first read. */
  readonly #readers = new Map<ListMethod, ListReader>();
  readonly #subscriptions: ServerSubscriptions;
  /** Set for servers with a listen stream, instead of `#subscriptions`. */
  readonly #listen: ServerListenStream | undefined;
  #reading: Promise<void> | undefined;
  #isReady = false;
  #isRead = false;
  #isOver = false;

  /** `target`: server name, or key of the instance. `announce`: handles a notification as if the server had sent it. */
  constructor(
    context: RunContext,
    session: Session,
    target: string,
    owner: CatalogServer | undefined,
    announce: (method: string) => void,
  ) {
    this.#context = context;
    this.#session = session;
    this.#owner = owner;
    this.#announce = announce;
    const { clock, throttle, clean, onProblem } = context;
    const parts = { clock, session, throttle, clean, onProblem, uris: () => context.uris(target) };
    this.#subscriptions = new ServerSubscriptions(parts);
    if (!session.hasListenStream) return;
    const listChanges = this.#announced().map(({ member }) => member);
    // Notifications may have been missed.
    const onGap = () => this.#announceAll(this.#announced());
    this.#listen = new ServerListenStream({ ...parts, listChanges, onGap });
  }

  /** Opens the listen stream before the first read, so that no change in between is missed. */
  begin(): void {
    this.#listen?.update();
  }

  /** Call it before `ready`. Resolves when the tools are known or the server cannot list them. */
  readTools(limits: CallOptions): Promise<void> {
    return this.#readerOf('tools/list').readFirst(limits);
  }

  ready(): void {
    this.#isReady = true;
    this.#learnFacts();
    this.#reading = this.#readAll();
    if (!this.#listen) this.#subscriptions.update();
  }

  /** Resolves when each list was read once or has failed. */
  get listsRead(): Promise<void> {
    return this.#reading ?? Promise.resolve();
  }

  onNotification(method: string, params?: Buffer): void {
    if (this.#isOver) return;
    if (method === NOTIFICATION.acknowledged) this.#listen?.acknowledged(params);
    for (const list of changedLists.get(method) ?? []) {
      if (list === 'tools/list') this.#readerOf(list).changed();
      // Other lists are first read when the server is ready.
      else if (this.#isReady && this.#offeredLists().includes(list)) this.#readerOf(list).changed();
    }
  }

  /**
   * A legacy server lost the session and has a new one. It may now be another release, so everything is read again: facts, all
   * lists (with change notifications or not) and subscriptions. While the tools are being read, the returned function gives a
   * promise. No tool is called before it settles, so that a changed tool is compared with its pin first.
   */
  renewed(): () => Promise<void> | undefined {
    const { server } = this.#session;
    const { forgetAnswers, listings } = this.#context;
    this.#subscriptions.renewed();
    forgetAnswers(server);
    const tools = this.#readerOf('tools/list').readAgain();
    if (this.#isReady) {
      this.#learnFacts();
      this.#subscriptions.update();
      // The facts may be the same; the session is another one.
      if (this.#owner) listings.changed(server);
    }
    this.#announceAll(this.#offered().filter(({ capability }) => capability !== 'tools'));
    return tools;
  }

  /** Hostler has another account at the server: every list may differ, even one without change notifications. */
  accountChanged(): void {
    if (this.#isReady) this.#announceAll(this.#offered());
  }

  /** Resolves when the server has accepted the subscription. */
  subscribe(uri: string): Promise<void> {
    return (this.#listen ?? this.#subscriptions).subscribed(uri);
  }

  /** Call it when the last subscriber of the resource has left. */
  unsubscribe(uri: string): void {
    if (this.#listen) this.#listen.update();
    else this.#subscriptions.unsubscribe(uri);
  }

  /** The session may stay open until its last calls have ended. */
  end(): void {
    this.#isOver = true;
    this.#listen?.stop();
    this.#subscriptions.stop();
    for (const reader of this.#readers.values()) reader.stop();
  }

  #readerOf(method: ListMethod): ListReader {
    const known = this.#readers.get(method);
    if (known) return known;
    const { clock, throttle } = this.#context;
    const own = method === 'tools/list' ? this.#toolParts() : this.#listParts(method);
    const reader = new ListReader({ clock, throttle, session: this.#session, method, ...own });
    this.#readers.set(method, reader);
    return reader;
  }

  #toolParts() {
    const { beginToolRead, onToolsFailed } = this.#context;
    const { server } = this.#session;
    return { begin: () => beginToolRead(server), onProblem: (error: unknown) => onToolsFailed(server, error) };
  }

  #listParts(method: ListMethod) {
    const { listings, onProblem } = this.#context;
    const begin = () => async (list: ServerList) => {
      const { items, ttlMs, cacheScope } = list;
      await checkAhead(method, items);
      const owner = this.#currentOwner;
      if (!owner) return;
      listings.learnList(owner, method, { items, ttlMs, isPublic: cacheScope === 'public' });
      if (this.#isRead) listings.save(owner);
    };
    return { begin, onProblem };
  }

  /** Undefined also if another server has taken the name. */
  get #currentOwner(): CatalogServer | undefined {
    const owner = this.#owner;
    return owner && this.#context.findServer(owner.definition.name) === owner ? owner : undefined;
  }

  #learnFacts(): void {
    const owner = this.#currentOwner;
    if (owner) this.#context.listings.learnFacts(owner, ownFacts(this.#session.facts), this.#offeredLists());
  }

  /** Reads one list after the other, so that calls are not delayed. */
  async #readAll(): Promise<void> {
    for (const method of this.#offeredLists()) {
      if (this.#isOver || this.#session.closedBy) break;
      await this.#readerOf(method).read();
    }
    this.#isRead = true;
    if (this.#owner) this.#context.listings.save(this.#owner);
  }

  #announceAll(changes: typeof listChanges): void {
    for (const { notification } of changes) this.#announce(notification);
  }

  /** Tools, which a server may list without the capability, and other lists that the server offers. */
  #offered(): typeof listChanges {
    const { capabilities } = this.#session.facts;
    return listChanges.filter(
      ({ capability }) =>
        capability === 'tools' || (this.#owner && memberBytes(capabilities, capability) !== undefined),
    );
  }

  /** The lists of `#offered`, without tools. */
  #offeredLists(): ListMethod[] {
    const methods = this.#offered().flatMap(({ notification }) => changedLists.get(notification) ?? []);
    return methods.filter((method) => method !== 'tools/list');
  }

  /** Lists with change notifications. */
  #announced(): typeof listChanges {
    if (!this.#owner) return [];
    return listChanges.filter(({ capability }) => {
      const object = memberBytes(this.#session.facts.capabilities, capability);
      return object !== undefined && memberText(object, 'listChanged') === 'true';
    });
  }
}

/** Copies: the buffers are views of a whole response. */
const ownFacts = ({ era, version, capabilities, serverInfo, instructions }: ServerFacts): KnownFacts => ({
  era,
  version,
  capabilities: Buffer.from(capabilities),
  serverInfo: serverInfo && Buffer.from(serverInfo),
  instructions,
});
