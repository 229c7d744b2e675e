/**
 * All views, by endpoint and rights. Principals with equal rights share a view.
 * A view is built on first use, and replaced when one of its servers, its set of servers or the rules changed.
 * Invariants: a returned view is up to date. The cost of a change depends only on the size of the changed server.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Principal } from '../../policy/operation.js';
import { type EndpointId, endpointKey } from '../exchange.js';
import type { Upstreams } from '../upstreams.js';
import { Access, ServerLists } from './server-lists.js';
import { type OnClash, Tables } from './table.js';
import { View } from './view.js';

interface Slot {
  view: View;
  /** The states of servers that are not ready, as one text; tool lists show them. */
  states: string;
  /** Value of `#changes` at the last check of the view. */
  checkedAt: number;
}

const viewsMax = 4_096;
/** Total tools of all views. Beyond it the oldest views are dropped, down to `viewsMin`. */
const viewToolsMax = 1_000_000;
const viewsMin = 256;
const accessMax = 1_024;
/** Maximum number of reported pairs of servers. */
const clashesMax = 1_000;

export class Views {
  readonly #upstreams: Upstreams;
  readonly #slots = new Map<string, Slot>();
  readonly #access = new Map<string, Access>();
  readonly #tables: Tables;
  readonly #changedServers = new Set<string>();
  /** Lists by server, in the order of `upstreams.names()`. */
  #servers = new Map<string, ServerLists>();
  /** States by server, only of servers that are not ready. */
  readonly #states = new Map<string, string>();
  #changes = 0;
  /** Value of `#changes` when a server was last added or removed. */
  #namesChangedAt = 0;
  #rulesRevision: number;
  #viewTools = 0;
  /** Last result: one request does three lookups, and the next is likely from the same client. */
  #last: { readonly endpoint: EndpointId; readonly principal: Principal; readonly slot: Slot } | undefined;

  /** `onClash` is called once for each pair of servers. */
  constructor(upstreams: Upstreams, onClash: OnClash = () => {}) {
    this.#upstreams = upstreams;
    this.#rulesRevision = upstreams.rulesRevision;
    const reported = new Set<string>();
    this.#tables = new Tables((target, first) => {
      const clash = `${first} ${target.server}`;
      if (reported.has(clash) || reported.size >= clashesMax) return;
      reported.add(clash);
      onClash(target, first);
    });
    this.#readNames();
  }

  /** Records that lists, facts or state of a server changed, or that it was removed. */
  changed(server: string): void {
    this.#changes++;
    this.#changedServers.add(server);
  }

  has(endpoint: EndpointId, principal: Principal): boolean {
    if (endpoint.kind === 'all') return true;
    const slot = this.#lastOf(endpoint, principal);
    if (slot) return slot.view.servers.length > 0;
    this.#readChanges();
    // An unknown name gets no view, because a client could invent any number of names.
    const isKnown =
      endpoint.kind === 'server' ? this.#servers.has(endpoint.server) : this.#upstreams.groups.has(endpoint.group);
    return isKnown && this.of(endpoint, principal).servers.length > 0;
  }

  of(endpoint: EndpointId, principal: Principal): View {
    return this.#find(endpoint, principal).view;
  }

  /** Returns a text that changes when the state of a server in the view changes. */
  statesOf(endpoint: EndpointId, principal: Principal): string {
    return this.#find(endpoint, principal).states;
  }

  #find(endpoint: EndpointId, principal: Principal): Slot {
    const last = this.#lastOf(endpoint, principal);
    if (last) return last;
    this.#readChanges();
    const key = `${endpointKey(endpoint)}\0${this.#upstreams.accessKey(principal)}`;
    let slot = this.#slots.get(key);
    if (!slot) slot = this.#make(key, endpoint, principal);
    else if (slot.checkedAt !== this.#changes) this.#refresh(slot);
    this.#last = { endpoint, principal, slot };
    return slot;
  }

  /** Compares by identity: principals are immutable, and a changed role gives a new object. */
  #lastOf(endpoint: EndpointId, principal: Principal): Slot | undefined {
    const last = this.#last;
    if (last?.principal !== principal || last.endpoint !== endpoint) return undefined;
    const isNow = last.slot.checkedAt === this.#changes && this.#rulesRevision === this.#upstreams.rulesRevision;
    return isNow ? last.slot : undefined;
  }

  #make(key: string, endpoint: EndpointId, principal: Principal): Slot {
    const accessKey = this.#upstreams.accessKey(principal);
    const access = this.#access.get(accessKey) ?? new Access(this.#upstreams, principal);
    if (!this.#access.has(accessKey)) setBounded(this.#access, accessKey, access, accessMax);
    const view = this.#view(endpoint, access);
    this.#viewTools += view.toolsMax;
    for (const [oldest, { view: gone }] of this.#slots) {
      const { size } = this.#slots;
      if (size < viewsMin || (size < viewsMax && this.#viewTools <= viewToolsMax)) break;
      this.#slots.delete(oldest);
      this.#viewTools -= gone.toolsMax;
    }
    const slot = { view, states: this.#statesIn(view), checkedAt: this.#changes };
    this.#slots.set(key, slot);
    return slot;
  }

  #refresh(slot: Slot): void {
    const { view } = slot;
    const isListed = this.#namesChangedAt <= slot.checkedAt;
    const isSame = isListed && view.lists.every((lists) => this.#servers.get(lists.server) === lists);
    if (!isSame) {
      slot.view = this.#view(view.endpoint, view.access, isListed ? view : undefined);
      this.#viewTools += slot.view.toolsMax - view.toolsMax;
    }
    slot.states = this.#statesIn(slot.view);
    slot.checkedAt = this.#changes;
  }

  /** `before`: a view of the same server names. */
  #view(endpoint: EndpointId, access: Access, before?: View): View {
    const listsOf = (server: string) => this.#servers.get(server) as ServerLists;
    if (before) return new View(endpoint, access, before.servers.map(listsOf), before.isFiltered, this.#tables);
    const all = this.#namesAt(endpoint);
    const names = all.filter((server) => access.allows(server, undefined));
    return new View(endpoint, access, names.map(listsOf), names.length < all.length, this.#tables);
  }

  #namesAt(endpoint: EndpointId): readonly string[] {
    if (endpoint.kind === 'server') return this.#servers.has(endpoint.server) ? [endpoint.server] : [];
    const names = [...this.#servers.keys()];
    if (endpoint.kind === 'all') return names;
    const group = new Set(this.#upstreams.groups.get(endpoint.group));
    return names.filter((name) => group.has(name));
  }

  #statesIn({ servers }: View): string {
    if (this.#states.size === 0) return '';
    let states = '';
    for (const server of servers) {
      const state = this.#states.get(server);
      // The name is included, because principals with the same table may see different servers.
      if (state !== undefined) states += `${server} ${state} `;
    }
    return states;
  }

  #readChanges(): void {
    if (this.#rulesRevision !== this.#upstreams.rulesRevision) {
      this.#rulesRevision = this.#upstreams.rulesRevision;
      this.#changes++;
      this.#slots.clear();
      this.#access.clear();
      this.#viewTools = 0;
      this.#readNames();
    }
    if (this.#changedServers.size === 0) return;
    const changed = [...this.#changedServers];
    this.#changedServers.clear();
    if (changed.some((server) => !this.#upstreams.known(server) || !this.#servers.has(server))) this.#readNames();
    else for (const server of changed) this.#servers.set(server, this.#read(server));
  }

  #readNames(): void {
    const before = this.#servers;
    this.#servers = new Map(this.#upstreams.names().map((server) => [server, this.#read(server)]));
    for (const server of before.keys()) if (!this.#servers.has(server)) this.#states.delete(server);
    this.#namesChangedAt = this.#changes;
  }

  #read(server: string): ServerLists {
    const known = this.#upstreams.known(server);
    if (known && !known.isReady) this.#states.set(server, known.state);
    else this.#states.delete(server);
    const lists = this.#servers.get(server);
    // A new definition may rename tools even if the lists of the server did not change.
    const isSame = known?.revision === lists?.known?.revision && known?.definition === lists?.known?.definition;
    return lists && isSame ? lists : new ServerLists(server, known, lists);
  }
}
