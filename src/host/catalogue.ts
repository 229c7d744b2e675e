/**
 * What is known of each server's lists: asks for them in the order of a call (guard, budget, what is kept, breaker, place,
 * connection), keeps what the server allows to keep, and learns tools from every list of them that is read.
 * Not here: describing many servers at once (discovery.ts), what a kept answer costs (policy/list-cache.ts), reading pages
 * (session/lists.ts), when tools are read without being asked for (tool-reader.ts).
 *
 * Invariants: whoever asks sees only tools that it may call, wherever they come from; of two readings of a server's tools the
 * one that began later counts, whichever ends first; an item is attributed to the server it was read from, whatever it says.
 */

import { type ListHints, type Listings, sameItems } from '../catalog/listings.js';
import type { HostItem, HostTool } from '../catalog/pinned-tools.js';
import { type JudgedTool, judgedTools } from '../catalog/pinned-tools.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { KeepAlive } from '../kernel/keep-alive.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import { cacheHint } from '../policy/cache-hint.js';
import type { CallBudgets } from '../policy/call-budget.js';
import { compositeKey, principalKey } from '../policy/composite-key.js';
import { waitMs } from '../policy/deadline.js';
import { copyItems, type KeptItem, ListCache, type ListQuestion } from '../policy/list-cache.js';
import type { Principal } from '../policy/operation.js';
import { embedder } from '../policy/operation.js';
import type { PinStatus } from '../policy/pin-store.js';
import type { PinChange, Pins } from '../policy/pins.js';
import type { ReconnectWaits } from '../policy/reconnect-waits.js';
import { type ServerThrottle, throughThrottle } from '../policy/server-throttle.js';
import { type ReadLimits, SharedReads } from '../policy/shared-reads.js';
import { isListMethod, type ListedItem, type ListMethod, type ServerList } from '../session/lists.js';
import { resultOf } from '../session/rpc-response.js';
import type { CallOptions, Session } from '../session/session.js';
import { memberString } from '../wire/json-members.js';
import { NOTIFICATION } from '../wire/rpc-codes.js';
import { admitted } from './admission.js';
import type { ListOptions, ResourceResult } from './host-interface.js';
import type { ManagedServer } from './managed-server.js';

export interface CatalogueParts {
  readonly clock: Clock;
  /** Throws when there is no such server, or the host is closed. */
  readonly serverOf: (name: string) => ManagedServer;
  /** Undefined when there is none. */
  readonly findServer: (name: string) => ManagedServer | undefined;
  readonly guards: () => readonly Guard[];
  readonly pins: Pins;
  readonly budgets: Pick<CallBudgets, 'charge'>;
  readonly serverThrottle: ServerThrottle;
  readonly reconnects: ReconnectWaits;
  /** What is kept of servers, of their tools here. */
  readonly known: Pick<Listings, 'hasTools' | 'learnTools' | 'recall'>;
  readonly clean: (text: string) => string;
  readonly alive: KeepAlive;
  readonly onDenied: (request: GuardRequest) => void;
  /** What old answers were given for is no longer there. */
  readonly onToolsChanged: (server: string) => void;
  /** What a list was found to differ in from what is pinned. */
  readonly onPins: (server: string, changes: readonly PinChange[]) => void;
}

const listDeadlineMs = 10_000;
const readDeadlineMs = 60_000;
/** What is put into a request comes from a caller. */
const uriCharsMax = 8_192;

/** What a server answered, and for how long it may be kept. */
interface Answered extends ListHints {
  readonly items: readonly KeptItem[];
}

type Learn = (items: readonly ListedItem[], hints: ListHints) => void;

export class Catalogue {
  readonly #parts: CatalogueParts;
  readonly #cache: ListCache;
  readonly #reads: SharedReads<readonly KeptItem[]>;
  /** Counts readings of tools, of all servers. */
  #readings = 0;
  /** The newest reading that each server's tools were learnt from. */
  readonly #learntFrom = new WeakMap<ManagedServer, number>();

  constructor(parts: CatalogueParts) {
    this.#parts = parts;
    this.#cache = new ListCache(parts.clock);
    this.#reads = new SharedReads(parts.clock);
  }

  // --- for callers

  /** The tools of one server, as far as the principal may call them. */
  async tools(server: string, options: ListOptions = {}): Promise<HostTool[]> {
    const items = await this.#listed(server, 'tools/list', options);
    return this.#judged(server, items).map(({ key, ...tool }) => ({ server, name: key, ...tool }));
  }

  /** One list of one server, to its last page. */
  async list(server: string, method: ListMethod, options: ListOptions = {}): Promise<HostItem[]> {
    const items = await this.#listed(server, method, options);
    if (method === 'tools/list') return this.#judged(server, items).map((tool) => ({ server, ...tool }));
    return items.map(({ key, raw }) => ({ server, key, raw }));
  }

  async #listed(server: string, method: ListMethod, options: ListOptions): Promise<ListedItem[]> {
    const { principal = embedder, signal } = options;
    const deadlineMs = waitMs(options.deadlineMs, listDeadlineMs);
    if (!isListMethod(method)) throw noList(server);
    this.#mustBeAllowed({ principal, server, tool: undefined, action: 'list' });
    const items = await this.#items({ server, method, uri: '', principal }, deadlineMs, signal);
    return method === 'tools/list' ? this.visible(server, principal, items) : items;
  }

  /** Reading gives out what a server holds: it takes the right to call the server as a whole, not only to see it. */
  async read(server: string, uri: string, options: ListOptions = {}): Promise<ResourceResult> {
    const { principal = embedder, signal } = options;
    const deadlineMs = waitMs(options.deadlineMs, readDeadlineMs);
    if (this.#parts.findServer(server)?.definition.isolation === 'per-client') {
      this.#mustBeAllowed({ principal, server, tool: undefined, action: 'call' });
      throw readMissesInstance(server);
    }
    this.chargeRead(server, uri, principal);
    const [item] = await this.#items({ server, method: 'resources/read', uri, principal }, deadlineMs, signal);
    const { raw: bytes } = item as KeptItem;
    return { server, uri, bytes, json: () => JSON.parse(bytes.toString('utf8')) as unknown };
  }

  /** Whether the principal may read what the server holds. Nothing is charged or told. */
  mayRead(server: string, principal: Principal): boolean {
    return denial(this.#parts.guards, { principal, server, tool: undefined, action: 'call' }) === undefined;
  }

  /** Throws unless the principal may read this of the server now; it is charged for it. */
  chargeRead(server: string, uri: string, principal: Principal): void {
    if (typeof uri !== 'string' || uri === '' || uri.length > uriCharsMax) throw badUri(server);
    this.#mustBeAllowed({ principal, server, tool: undefined, action: 'call' });
    const refused = this.#parts.budgets.charge({ principal, server });
    if (refused) throw refused;
  }

  #judged(server: string, items: readonly ListedItem[]): JudgedTool[] {
    return judgedTools(this.#parts.pins, server, items, this.#parts.findServer(server)?.tools ?? []);
  }

  /** Those that the principal may call. */
  visible<Item extends ListedItem>(server: string, principal: Principal, items: readonly Item[]): Item[] {
    return items.filter(
      ({ key }) => denial(this.#parts.guards, { principal, server, tool: key, action: 'call' }) === undefined,
    );
  }

  // --- what happens to servers

  /**
   * A reading of the server's tools begins; hand the list to what is returned. Of a server that was replaced meanwhile, or
   * behind a reading that began later, it changes nothing.
   */
  reading(server: string): (list: ServerList) => Promise<void> | void {
    const managed = this.#parts.findServer(server);
    if (!managed) return () => {};
    const epoch = this.#cache.epochOf(server, 'tools/list');
    const learn = this.#reading(managed);
    const judge = (list: ServerList) => {
      const isCurrent = this.#cache.epochOf(server, 'tools/list') === epoch;
      learn(list.items, answeredList(list));
      // Read for nobody in particular: only what is for everybody can be kept.
      if (isCurrent && list.cacheScope === 'public')
        this.#keep(managed, { server, method: 'tools/list', uri: '', principal: embedder }, answeredList(list));
    };
    return (list) => {
      const preparing = this.#parts.pins.prepare(server, list.items);
      return preparing !== undefined ? preparing.then(() => judge(list)) : judge(list);
    };
  }

  /** A notification of the server came in. */
  heard(server: string, method: string, params: Buffer | undefined): void {
    if (method === NOTIFICATION.toolsChanged) this.#cache.drop(server, 'tools/list');
    else if (method === NOTIFICATION.promptsChanged) this.#cache.drop(server, 'prompts/list');
    else if (method === NOTIFICATION.resourcesChanged) {
      this.#cache.drop(server, 'resources/list');
      this.#cache.drop(server, 'resources/templates/list');
    } else if (method === NOTIFICATION.resourceUpdated) {
      const uri = params && memberString(params, 'uri');
      if (uri === undefined) this.#cache.drop(server, 'resources/read');
      else this.#cache.dropRead(server, uri);
    }
  }

  /** Another run, account or definition, or the end of the server: nothing that was read before counts. */
  drop(server: string): void {
    this.#cache.drop(server);
    this.#parts.pins.forgetList(server);
  }

  /** Others decide now who may see what. */
  dropAll(): void {
    this.#cache.dropAll();
  }

  /** What was known of the server when it last ran, so that it can be described without being started. */
  recall(managed: ManagedServer, before?: ManagedServer): void {
    const { name } = managed.definition;
    managed.learn(this.#parts.known.recall(managed, before), this.#isApproved(name));
  }

  /** The same tools, judged anew: a pin was approved. */
  judgeAnew(server: string): void {
    const managed = this.#parts.serverOf(server);
    this.#cache.drop(server);
    // No list is not an empty one: nothing that was pinned is gone.
    if (this.#parts.known.hasTools(managed)) this.#learn(managed, managed.tools, undefined);
  }

  // --- inside

  #mustBeAllowed(request: GuardRequest): void {
    const refused = denial(this.#parts.guards, request);
    if (!refused) return;
    this.#parts.onDenied(request);
    throw refused;
  }

  async #items(question: ListQuestion, deadlineMs: number, signal: CancelSignal | undefined): Promise<KeptItem[]> {
    const { server, method, uri, principal } = question;
    const { clock, serverOf, alive } = this.#parts;
    const managed = serverOf(server);
    const kept = this.#kept(managed, question);
    if (kept) return kept;
    const key = compositeKey(server, method, uri, principalKey(principal));
    // By the epoch: who asks after a drop must not be given what was asked for before it.
    const version = () => this.#cache.epochOf(server, method);
    const reader = { deadlineAtMs: clock.nowMs() + deadlineMs, signal, version, left: left(server, method) };
    alive.hold();
    try {
      const ask = (limits: ReadLimits) => managed.whileHeld(() => this.#ask(managed, question, limits));
      return copyItems(await this.#reads.join(key, reader, ask));
    } finally {
      alive.letGo();
    }
  }

  #kept(managed: ManagedServer, question: ListQuestion): KeptItem[] | undefined {
    // Reading the token drops what is kept if it belongs to another account, also when the provider did not announce it.
    managed.auth?.current();
    return this.#cache.get(question);
  }

  async #ask(managed: ManagedServer, question: ListQuestion, { deadlineAtMs, signal, sending }: ReadLimits) {
    const { server, method } = question;
    const { clock, serverThrottle, reconnects } = this.#parts;
    let learn: Learn | undefined;
    let epoch: number | undefined;
    const limits = { deadlineAtMs, signal };
    const attempt = async (): Promise<Answered> => {
      const { connection } = await managed.supervisor.acquire(deadlineAtMs, signal);
      // The server may have been started for this, and its public list have been read on the way.
      const items = this.#kept(managed, question);
      if (items) return { items, ttlMs: 0, isPublic: false };
      // The question may have waited for a place or for the connection.
      const refusal = serverThrottle.refusal(server);
      if (refusal) throw refusal;
      epoch = sending();
      if (method === 'tools/list') learn = this.#reading(managed);
      return this.#askOnce(connection, question, limits);
    };
    const answered = await throughThrottle(serverThrottle, server, () =>
      admitted(managed, managed, clock, question, limits, () => reconnects.untilConnected(managed, limits, attempt)),
    );
    // Nobody is shown a list before it was judged, and from there on all happens in one tick.
    const preparing = learn && this.#parts.pins.prepare(server, answered.items);
    if (preparing !== undefined) await preparing;
    const isCurrent = this.#cache.epochOf(server, method) === epoch;
    learn?.(answered.items, answered);
    if (isCurrent) this.#keep(managed, question, answered);
    return answered.items;
  }

  async #askOnce(session: Session, { method, uri, principal }: ListQuestion, limits: CallOptions): Promise<Answered> {
    if (method !== 'resources/read') return answeredList(await session.list(method, limits));
    const answer = await session.request(method, JSON.stringify({ uri }), { ...limits, client: principal.id });
    const raw = resultOf(answer, session.server, method, this.#parts.clean);
    // What was asked on the way, and refused, may have made another answer of it.
    const { ttlMs = 0, isPublic = false } = (answer.wasAsked ? undefined : cacheHint(raw)) ?? {};
    return { items: [{ key: uri, raw }], ttlMs, isPublic };
  }

  #keep({ definition }: ManagedServer, question: ListQuestion, answered: Answered): void {
    if (definition.cache === 'off') return;
    // Learning from the list may itself have dropped what was kept before it; nothing else has happened in this tick.
    const epoch = this.#cache.epochOf(question.server, question.method);
    this.#cache.put(question, answered.items, answered, epoch);
  }

  #reading(managed: ManagedServer): Learn {
    const reading = ++this.#readings;
    return (items, hints) => {
      if (this.#parts.findServer(managed.definition.name) !== managed) return;
      if ((this.#learntFrom.get(managed) ?? 0) > reading) return;
      this.#learntFrom.set(managed, reading);
      this.#learn(managed, items, hints);
    };
  }

  /** `hints` undefined: the same list as before, judged anew. */
  #learn(managed: ManagedServer, items: readonly ListedItem[], hints: ListHints | undefined): void {
    const { pins, clock, known, onToolsChanged, onPins } = this.#parts;
    const { name } = managed.definition;
    const isNews = !sameItems(managed.tools, items);
    const wasSeen = known.hasTools(managed);
    const { changes, isFirstSight, isTrusted } = pins.observe(name, items, clock.date());
    onPins(name, changes);
    // At first sight there are no old answers, only the call that woke the server. A trusted server is not compared with pins,
    // but what it answered with other tools counts no more either.
    const isChanged = isTrusted ? wasSeen && isNews : !isFirstSight && changes.some(({ isFresh }) => isFresh);
    if (isChanged) {
      this.#cache.drop(name);
      onToolsChanged(name);
    }
    const tools = isNews ? items : managed.tools;
    managed.learn(tools, this.#isApproved(name));
    known.learnTools(managed, tools, hints);
  }

  #isApproved(server: string): (tool: string) => boolean {
    // Not looked up before it is needed: of most servers it never is.
    let statusOf: ((tool: string) => PinStatus) | undefined;
    return (tool) => {
      statusOf ??= this.#parts.pins.statusesOf(server);
      return statusOf(tool) === 'approved';
    };
  }
}

const answeredList = ({ items, ttlMs, cacheScope }: ServerList): Answered => ({
  items,
  ttlMs,
  isPublic: cacheScope === 'public',
});

const left =
  (server: string, method: string) =>
  (code: 'timeout' | 'cancelled'): HostError =>
    new HostError(
      code,
      `${method} of server '${server}': ${code === 'timeout' ? 'no answer by the deadline' : 'the caller gave up'}`,
      { server, hint: 'nothing was changed: it can be asked again' },
    );

/** It may be no server at all. */
const shown = (server: string): string => neutraliseLine(server, LIMITS.quotedChars);

const noList = (server: string): HostError =>
  new HostError('invalid_arguments', `server '${shown(server)}': the method is not one that lists`, {
    server,
    field: 'method',
    execution: 'not_executed',
    hint: 'use tools/list, prompts/list, resources/list or resources/templates/list',
  });

const readMissesInstance = (server: string): HostError =>
  new HostError('invalid_request', `server '${shown(server)}' has isolation "per-client", and no client is named`, {
    server,
    field: 'instance',
    execution: 'not_executed',
    hint: 'use host.request(server, "resources/read", params, { instance: "<client>" })',
  });

const badUri = (server: string): HostError =>
  new HostError(
    'invalid_arguments',
    `server '${shown(server)}': uri must be a text of 1 to ${uriCharsMax} characters`,
    {
      server,
      field: 'uri',
      limit: uriCharsMax,
      execution: 'not_executed',
      hint: 'take it from the list of the server’s resources',
    },
  );
