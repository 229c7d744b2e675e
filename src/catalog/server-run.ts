/**
 * What is kept open and up to date beside the calls of one run of a server: the lists that are not its tools, and what it
 * tells of its own accord: changes of lists, updates of the resources that somebody subscribed to.
 * Not here: the tools (tool-reader.ts), what is known of a server (listings.ts), who subscribed (subscriptions.ts).
 *
 * Invariants: none of it holds up a call or counts as one; only what the server offers is asked for; a failure leaves what
 * was known, and ends nothing; of one resource one request at a time is under way, and the last one says what is wanted.
 */
import type { Clock } from '../kernel/clock.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import { resultOf } from '../session/rpc-response.js';
import type { Session } from '../session/session.js';
import { memberBytes, memberText } from '../wire/json-members.js';
import { NOTIFICATION } from '../wire/rpc-codes.js';
import { ListReader, readMsMax } from './list-reader.js';
import { type ListenParts, ListenStream } from './listen-stream.js';

export interface RunParts {
  readonly clock: Clock;
  readonly session: Session;
  /** False for the instance of one client: what a server lists is read of the one that all share. */
  readonly hasLists: boolean;
  /** A list that is not of tools was read. */
  readonly learn: (method: ListMethod, list: ServerList) => void;
  /** What was learnt is complete for now. */
  readonly keep: () => void;
  /** Resources that somebody subscribed to, now. */
  readonly uris: () => readonly string[];
  /** As if the server had said so. */
  readonly announce: (method: string) => void;
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

/** For one request to subscribe or to end it. */
const subscribeMsMax = 10_000;

/** A Map: a server may send a notification of any name, also one that every object inherits. */
const announced: ReadonlyMap<string, readonly ListMethod[]> = new Map([
  [NOTIFICATION.promptsChanged, ['prompts/list']],
  [NOTIFICATION.resourcesChanged, ['resources/list', 'resources/templates/list']],
]);

export class ServerRun {
  readonly #parts: RunParts;
  readonly #learners = new Map<ListMethod, ListReader>();
  readonly #listen: ListenStream | undefined;
  /** Legacy: what the server was told, and changes of it, one after the other for each. */
  readonly #told = new Set<string>();
  readonly #turns = new KeyedMutex();
  #reading: Promise<void> | undefined;
  #isReady = false;
  /** All were read once. */
  #isRead = false;

  constructor(parts: RunParts) {
    this.#parts = parts;
    const { capabilities } = parts.session.facts;
    if (parts.hasLists)
      for (const method of offeredLists(capabilities)) this.#learners.set(method, this.#learner(method));
    if (parts.session.hasListenStream) this.#listen = this.#listenStream();
  }

  /** Before anything is read: what changes meanwhile is heard. */
  begin(): void {
    this.#listen?.update();
  }

  /** It can be called. */
  ready(): void {
    this.#isReady = true;
    this.#reading = this.#readAll();
    if (!this.#listen) this.#tellAll();
  }

  /** Those of its lists that are not tools. */
  get offeredLists(): readonly ListMethod[] {
    return [...this.#learners.keys()];
  }

  /** Resolves when its lists were read once, or could not be. */
  get listsRead(): Promise<void> {
    return this.#reading ?? Promise.resolve();
  }

  heard(method: string, params: Buffer | undefined): void {
    if (method === NOTIFICATION.acknowledged) this.#listen?.acknowledged(params);
    // Until it is ready they are not read at all.
    if (!this.#isReady) return;
    for (const list of announced.get(method) ?? []) this.#learners.get(list)?.changed(this.#parts.session);
  }

  /** A legacy server has forgotten the session, and with it what it was told; what it said meanwhile reached nobody. */
  renewed(): void {
    this.#told.clear();
    if (!this.#isReady) return;
    this.#tellAll();
    this.#announceAll();
  }

  /** The server knows us as another account: what it lists may be another thing now, whether it tells of changes or not. */
  accountChanged(): void {
    const { hasLists, session, announce } = this.#parts;
    if (!this.#isReady || !hasLists) return;
    for (const { capability, notification } of listChanges)
      if (memberBytes(session.facts.capabilities, capability) !== undefined) announce(notification);
  }

  /** Resolves when the server will tell of updates of this resource. */
  async subscribe(uri: string): Promise<void> {
    if (this.#listen) await this.#listen.wanted(uri);
    else await this.#tell(uri);
  }

  /** Nobody wants to hear of it any more. */
  unsubscribe(uri: string): void {
    if (this.#listen) this.#listen.update();
    else this.#tell(uri).catch(this.#parts.onProblem);
  }

  /** The run is over. */
  end(): void {
    this.#listen?.stop();
  }

  // --- lists

  #learner(method: ListMethod): ListReader {
    const { clock, learn, keep, onProblem } = this.#parts;
    const begin = () => (list: ServerList) => {
      learn(method, list);
      if (this.#isRead) keep();
    };
    return new ListReader(method, clock, begin, onProblem);
  }

  /** One after the other: whoever calls now is in more of a hurry. */
  async #readAll(): Promise<void> {
    const { clock, session, keep, onProblem } = this.#parts;
    for (const learner of this.#learners.values()) {
      if (session.closedBy) break;
      try {
        await learner.readOnce(session, { deadlineAtMs: clock.nowMs() + readMsMax });
      } catch (error) {
        // That the run has ended is told elsewhere.
        if (!session.closedBy) onProblem(error);
      }
    }
    this.#isRead = true;
    keep();
  }

  // --- subscriptions

  #listenStream(): ListenStream {
    const { clock, session, uris, clean, onProblem } = this.#parts;
    const offered = this.#offeredChanges().map(({ member }) => member);
    const onGap = () => this.#announceAll();
    return new ListenStream({ clock, session, listChanges: offered, uris, onGap, clean, onProblem });
  }

  /** Nobody listened for a while: whatever could have changed may have. */
  #announceAll(): void {
    for (const { notification } of this.#offeredChanges()) this.#parts.announce(notification);
  }

  #offeredChanges(): typeof listChanges {
    const { hasLists, session } = this.#parts;
    return hasLists ? offeredChanges(session.facts.capabilities) : [];
  }

  #tellAll(): void {
    for (const uri of this.#parts.uris()) this.#tell(uri).catch(this.#parts.onProblem);
  }

  /** Legacy: lets the server know what is wanted now of this resource. */
  #tell(uri: string): Promise<void> {
    return this.#turns.take(uri, async () => {
      const { clock, session, uris, clean } = this.#parts;
      const isWanted = uris().includes(uri);
      if (isWanted === this.#told.has(uri) || session.closedBy) return;
      const method = isWanted ? 'resources/subscribe' : 'resources/unsubscribe';
      if (!isWanted) this.#told.delete(uri);
      const params = JSON.stringify({ uri });
      const answer = await session.request(method, params, { deadlineAtMs: clock.nowMs() + subscribeMsMax });
      resultOf(answer, session.server, method, clean);
      if (isWanted) this.#told.add(uri);
    });
  }
}

const listChanges: readonly {
  readonly capability: string;
  readonly member: ListenParts['listChanges'][number];
  readonly notification: string;
}[] = [
  { capability: 'tools', member: 'toolsListChanged', notification: NOTIFICATION.toolsChanged },
  { capability: 'prompts', member: 'promptsListChanged', notification: NOTIFICATION.promptsChanged },
  { capability: 'resources', member: 'resourcesListChanged', notification: NOTIFICATION.resourcesChanged },
];

const offeredChanges = (capabilities: Buffer) =>
  listChanges.filter(({ capability }) => {
    const object = memberBytes(capabilities, capability);
    return object !== undefined && memberText(object, 'listChanged') === 'true';
  });

/** Without the tools: those are known before a run is ready. */
function offeredLists(capabilities: Buffer): ListMethod[] {
  const has = (capability: string) => memberBytes(capabilities, capability) !== undefined;
  return [
    ...(has('prompts') ? (['prompts/list'] as const) : []),
    ...(has('resources') ? (['resources/list', 'resources/templates/list'] as const) : []),
  ];
}
