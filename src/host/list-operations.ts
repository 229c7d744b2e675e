/**
 * Lists and resources of servers: runs them as operations, and updates the known tools from every tool list.
 * Not here: the stages of an operation (operations.ts), describing many servers (catalog/discovery.ts), reading pages
 * (session/lists.ts), background reads (catalog/list-reader.ts).
 *
 * Invariants: a caller sees only tools that it may call. If two reads of a tool list overlap, the one that began later counts.
 * An item belongs to the server that it was read from.
 */
import { checkAhead } from '../catalog/list-repair.js';
import { type ListHints, type Listings, sameItems } from '../catalog/listings.js';
import { type HostItem, type HostTool, type PinnedTool, pinnedTools } from '../catalog/pinned-tools.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { denial, type GuardRequest } from '../policy/allowlist.js';
import { cacheHint, type ResponseCache } from '../policy/cache.js';
import { listQuestion } from '../policy/cache-stage.js';
import {
  copyItems,
  embedder,
  type Item,
  type ListResult,
  type Operation,
  type Principal,
  waitMs,
} from '../policy/operation.js';
import type { PinStatus } from '../policy/pin-records.js';
import type { PinChange } from '../policy/pins.js';
import type { CallBudgets } from '../policy/rate-limit.js';
import { isListMethod, type ListedItem, type ListMethod, type ServerList } from '../session/lists.js';
import { resultOf } from '../session/rpc-response.js';
import type { CallOptions, Session } from '../session/session.js';
import { memberString } from '../wire/json-members.js';
import { NOTIFICATION } from '../wire/methods.js';
import type { ListOptions, ResourceResult } from './host-interface.js';
import type { ManagedServer } from './managed-server.js';
import type { ListRequest, OperationsParts } from './operations.js';

/** The deadline is the caller's or `timeouts.call`, whichever is earlier. */
type Limits = Pick<CallOptions, 'deadlineAtMs' | 'signal' | 'resend'>;

type OperationsPart = 'clock' | 'serverOf' | 'findServer' | 'guards' | 'pins' | 'lists' | 'clean';

export interface ListOperationsParts extends Pick<OperationsParts, OperationsPart> {
  readonly budgets: Pick<CallBudgets, 'charge'>;
  /** Runs a list or a read through the pipeline, which sends it with `exchange`. */
  readonly list: (request: ListRequest) => Promise<readonly Item[]>;
  readonly known: Pick<Listings, 'hasTools' | 'learnTools' | 'restore'>;
  readonly onDenied: (request: GuardRequest) => void;
  /** Called when cached answers of the server's tools are outdated. */
  readonly onToolsChanged: (server: string) => void;
  /** Reports the differences between a list and the pins. */
  readonly onPins: (server: string, changes: readonly PinChange[]) => void;
}

const listDeadlineMs = 10_000;
const readDeadlineMs = 60_000;
/** Bound of a caller's text in a request. */
const uriCharsMax = 8_192;
/** No request has this epoch, so the answer is not cached. */
const staleEpoch = -1;

type Learn = (items: readonly ListedItem[], hints: ListHints) => void;

export class ListOperations {
  readonly #parts: ListOperationsParts;
  readonly #cache: ResponseCache<readonly Item[]>;
  /** Number of reads of tool lists, of all servers. */
  #readCount = 0;
  /** For each server, the number of the read that its tools come from. */
  readonly #newestRead = new WeakMap<ManagedServer, number>();

  constructor(parts: ListOperationsParts) {
    this.#parts = parts;
    this.#cache = parts.lists;
  }

  // --- for callers

  /** Lists the tools that the principal may call. */
  async tools(server: string, options: ListOptions = {}): Promise<HostTool[]> {
    const items = await this.#listed(server, 'tools/list', options);
    return this.#withPins(server, items).map(({ key, ...tool }) => ({ server, name: key, ...tool }));
  }

  async list(server: string, method: ListMethod, options: ListOptions = {}): Promise<HostItem[]> {
    const items = await this.#listed(server, method, options);
    if (method === 'tools/list') return this.#withPins(server, items).map((tool) => ({ server, ...tool }));
    return items.map(({ key, raw }) => ({ server, key, raw }));
  }

  async #listed(server: string, method: ListMethod, options: ListOptions): Promise<ListedItem[]> {
    const { principal = embedder, signal } = options;
    const deadlineMs = waitMs(options.deadlineMs, listDeadlineMs);
    if (!isListMethod(method)) throw noList(server);
    const items = await this.#parts.list({ kind: 'list', server, method, uri: '', principal, deadlineMs, signal });
    return method === 'tools/list' ? this.visible(server, principal, items) : [...items];
  }

  /** Needs the right to call the server as a whole, not only to see it. */
  async read(server: string, uri: string, options: ListOptions = {}): Promise<ResourceResult> {
    const { principal = embedder, signal } = options;
    const deadlineMs = waitMs(options.deadlineMs, readDeadlineMs);
    if (this.#parts.findServer(server)?.definition.isolation === 'per-client') {
      this.#mustBeAllowed({ principal, server, tool: undefined, action: 'call' });
      throw readMissesInstance(server);
    }
    checkUri(server, uri);
    const request = { kind: 'read', server, method: 'resources/read', uri, principal, deadlineMs, signal } as const;
    const [item] = await this.#parts.list(request);
    const { raw: bytes } = item as Item;
    return { server, uri, bytes, json: () => JSON.parse(bytes.toString('utf8')) as unknown };
  }

  mayRead(server: string, principal: Principal): boolean {
    return denial(this.#parts.guards, { principal, server, tool: undefined, action: 'call' }) === undefined;
  }

  /** Charges a read; throws if the principal may not read the resource now. */
  chargeRead(server: string, uri: string, principal: Principal): void {
    checkUri(server, uri);
    this.#mustBeAllowed({ principal, server, tool: undefined, action: 'call' });
    const refused = this.#parts.budgets.charge({ principal, server, tool: undefined });
    if (refused) throw refused;
  }

  #withPins(server: string, items: readonly ListedItem[]): PinnedTool[] {
    return pinnedTools(this.#parts.pins, server, items, this.#parts.findServer(server)?.tools ?? []);
  }

  visible<Item extends ListedItem>(server: string, principal: Principal, items: readonly Item[]): Item[] {
    return items.filter(
      ({ key }) => denial(this.#parts.guards, { principal, server, tool: key, action: 'call' }) === undefined,
    );
  }

  // --- events of servers

  /**
   * Called when a read of the server's tools begins; the returned function takes the list. It ignores the list if the server
   * was replaced meanwhile, or if a read that began later has ended.
   */
  beginToolRead(server: string): (list: ServerList) => Promise<void> | void {
    const managed = this.#parts.findServer(server);
    if (!managed) return () => {};
    const epoch = this.#cache.epochOf(server, 'tools/list');
    const learn = this.#reading(managed);
    const judge = (list: ServerList) => {
      const isCurrent = this.#cache.epochOf(server, 'tools/list') === epoch;
      learn(list.items, listResult(list));
      // No principal requested this list, so it is cached only if it is public.
      if (!isCurrent || list.cacheScope !== 'public' || managed.definition.cache === 'off') return;
      const question = listQuestion({ server, method: 'tools/list', uri: '', principal: embedder });
      this.#cache.put(question, list.items, listResult(list), this.#cache.epochOf(server, 'tools/list'));
    };
    return (list) => {
      const preparing = this.#prepare(server, list.items);
      return preparing !== undefined ? preparing.then(() => judge(list)) : judge(list);
    };
  }

  onNotification(server: string, method: string, params: Buffer | undefined): void {
    if (method === NOTIFICATION.toolsChanged) this.#cache.drop(server, 'tools/list');
    else if (method === NOTIFICATION.promptsChanged) this.#cache.drop(server, 'prompts/list');
    else if (method === NOTIFICATION.resourcesChanged) {
      this.#cache.drop(server, 'resources/list');
      this.#cache.drop(server, 'resources/templates/list');
    } else if (method === NOTIFICATION.resourceUpdated) {
      const uri = params && memberString(params, 'uri');
      if (uri === undefined) this.#cache.drop(server, 'resources/read');
      // Also drops resources whose URI is a prefix of the updated one.
      else this.#cache.drop(server, 'resources/read', (read) => uri.startsWith(read));
    }
  }

  /** Called after a change of run, account or definition, or after the end of the server. */
  drop(server: string): void {
    this.#cache.drop(server);
    this.#parts.pins.forgetList(server);
  }

  dropAll(): void {
    this.#cache.dropAll();
  }

  /** Restores the last known tools, so that the server can be described without a start. */
  restore(managed: ManagedServer, before?: ManagedServer): void {
    const { name } = managed.definition;
    managed.learn(this.#parts.known.restore(managed, before), this.#isApproved(name));
  }

  /** Compares the same tools with the pins again, after an approval. */
  reapplyPins(server: string): void {
    const managed = this.#parts.serverOf(server);
    this.#cache.drop(server);
    // Without a list, every pinned tool would count as removed.
    if (this.#parts.known.hasTools(managed)) this.#learn(managed, managed.tools, undefined);
  }

  // --- inside

  #mustBeAllowed(request: GuardRequest): void {
    const refused = denial(this.#parts.guards, request);
    if (!refused) return;
    this.#parts.onDenied(request);
    throw refused;
  }

  /** Sends a list or a read, and updates the known tools from the answer. */
  async exchange(managed: ManagedServer, operation: Operation, session: Session, limits: Limits): Promise<ListResult> {
    const { server, method, stage } = operation;
    managed.auth?.current();
    // This operation may have started the server, and the start may have cached its public list.
    const items = this.#cache.get(listQuestion(operation));
    if (items) return { items, ttlMs: 0, isPublic: false };
    const learn = method === 'tools/list' ? this.#reading(managed) : undefined;
    const epoch = this.#cache.epochOf(server, method);
    stage.epoch = epoch;
    const result = await this.#send(session, operation, limits);
    // A list is shown only after its comparison with the pins. All later steps run in one tick.
    const preparing = learn && this.#prepare(server, result.items);
    if (preparing !== undefined) await preparing;
    const isCurrent = this.#cache.epochOf(server, method) === epoch;
    learn?.(result.items, result);
    // `learn` may have dropped the cache, which changes the epoch.
    stage.epoch = isCurrent ? this.#cache.epochOf(server, method) : staleEpoch;
    return { ...result, items: copyItems(result.items) };
  }

  /** `timeouts.call` limits each attempt, even if the caller gave no deadline. */
  async #send(
    session: Session,
    { method, uri, principal }: Operation,
    { deadlineAtMs, signal, resend }: Limits,
  ): Promise<ListResult> {
    const limits = { deadlineAtMs, signal, resend };
    if (isListMethod(method)) return listResult(await session.list(method, limits));
    const answer = await session.request(method, JSON.stringify({ uri }), { ...limits, client: principal.id });
    const raw = resultOf(answer, session.server, method, this.#parts.clean);
    // If the server asked a question, the question was refused, which may have changed the answer.
    const { ttlMs = 0, isPublic = false } = (answer.wasAsked ? undefined : cacheHint(raw)) ?? {};
    return { items: [{ key: uri, raw }], ttlMs, isPublic };
  }

  /** Hashes and checks a long list in several turns; undefined if there is little to do. */
  #prepare(server: string, items: readonly ListedItem[]): Promise<void> | undefined {
    const hashing = this.#parts.pins.prepare(server, items);
    // An equal list was checked before.
    const isKnown = sameItems(this.#parts.findServer(server)?.tools ?? [], items);
    const checking = isKnown ? undefined : checkAhead('tools/list', items);
    if (hashing === undefined || checking === undefined) return hashing ?? checking;
    return hashing.then(() => checking);
  }

  #reading(managed: ManagedServer): Learn {
    const reading = ++this.#readCount;
    return (items, hints) => {
      if (this.#parts.findServer(managed.definition.name) !== managed) return;
      if ((this.#newestRead.get(managed) ?? 0) > reading) return;
      this.#newestRead.set(managed, reading);
      this.#learn(managed, items, hints);
    };
  }

  /** `hints` undefined: the list is the same as before. */
  #learn(managed: ManagedServer, items: readonly ListedItem[], hints: ListHints | undefined): void {
    const { pins, clock, known, onToolsChanged, onPins } = this.#parts;
    const { name } = managed.definition;
    const isNews = !sameItems(managed.tools, items);
    const wasSeen = known.hasTools(managed);
    const { changes, isFirstSight, isTrusted } = pins.observe(name, items, clock.date());
    onPins(name, changes);
    // When the tools are seen for the first time, the only operation is the call that started the server, so there are no old answers. A
    // trusted server has no pins, but its cached answers are dropped if its tools change.
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
    // Loaded on first use: most servers never need it.
    let statusOf: ((tool: string) => PinStatus) | undefined;
    return (tool) => {
      statusOf ??= this.#parts.pins.statusesOf(server);
      const status = statusOf(tool);
      // The annotations of a reworded tool are the approved ones.
      return status === 'approved' || status === 'reworded';
    };
  }
}

const listResult = ({ items, ttlMs, cacheScope }: ServerList): ListResult => ({
  items,
  ttlMs,
  isPublic: cacheScope === 'public',
});

/** The name may be unknown, so its text is not trusted. */
const shown = (server: string): string => neutraliseLine(server, LIMITS.quotedChars);

const noList = (server: string): HostError =>
  new HostError('invalid_arguments', `server '${shown(server)}': method is not a list method`, {
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

function checkUri(server: string, uri: unknown): void {
  if (typeof uri === 'string' && uri !== '' && uri.length <= uriCharsMax) return;
  throw new HostError(
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
}
