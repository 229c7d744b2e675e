/**
 * Every view there is: found by endpoint and principal, made when first asked for, made anew when something changed in it.
 * Invariant: a view that is handed out is the one that a list asked for now would show.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Principal } from '../../policy/call.js';
import { type EndpointId, endpointKey } from '../endpoint-id.js';
import type { Upstreams } from '../upstreams.js';
import { Tables } from './table.js';
import { type OnClash, View } from './view.js';

interface Kept {
  readonly view: View;
  /** What its tables were made of. */
  readonly madeOf: string;
  /** Whether its servers run: lists of tools say so. */
  states: string;
  /** The change up to which it was looked at. */
  checkedAt: number;
}

/** One for each endpoint and principal that was seen lately. */
const viewsMax = 256;
/** Pairs of servers that were told of. */
const clashesMax = 1_000;

export class Views {
  readonly #upstreams: Upstreams;
  readonly #kept = new Map<string, Kept>();
  readonly #tables = new Tables();
  readonly #definitions = new WeakMap<object, number>();
  #lastDefinition = 0;
  #changes = 0;
  #rulesRevision: number;
  /** Whose view was found last: one request asks three times, and the next is likely of the same client. */
  #last: { readonly endpoint: EndpointId; readonly principal: Principal; readonly kept: Kept } | undefined;
  readonly #onClash: OnClash;
  readonly #clashes = new Set<string>();

  /** `onClash` is told once of each two servers. */
  constructor(upstreams: Upstreams, onClash: OnClash = () => {}) {
    this.#upstreams = upstreams;
    this.#onClash = onClash;
    this.#rulesRevision = upstreams.rulesRevision;
  }

  /** Something is different at some server. */
  changed(): void {
    this.#changes++;
  }

  has(endpoint: EndpointId, principal: Principal): boolean {
    if (endpoint.kind === 'all') return true;
    const last = this.#lastOf(endpoint, principal);
    if (last) return last.view.servers.length > 0;
    // Asked with every request: what was seen lately is at hand, and a name that is none makes no view.
    const kept = this.#kept.get(viewKey(endpoint, principal));
    if (kept?.checkedAt === this.#changes && this.#rulesRevision === this.#upstreams.rulesRevision)
      return kept.view.servers.length > 0;
    return this.#serversOf(endpoint, principal).length > 0;
  }

  of(endpoint: EndpointId, principal: Principal): View {
    return this.#find(endpoint, principal).view;
  }

  /** Differs when the state of a server that is seen does. */
  statesOf(endpoint: EndpointId, principal: Principal): string {
    return this.#find(endpoint, principal).states;
  }

  #find(endpoint: EndpointId, principal: Principal): Kept {
    const last = this.#lastOf(endpoint, principal);
    if (last) return last;
    const kept = this.#keptOrMade(endpoint, principal);
    this.#last = { endpoint, principal, kept };
    return kept;
  }

  /** By the very objects: a principal is never changed, and one of another role is another. */
  #lastOf(endpoint: EndpointId, principal: Principal): Kept | undefined {
    const last = this.#last;
    if (last?.principal !== principal || last.endpoint !== endpoint) return undefined;
    const isNow = last.kept.checkedAt === this.#changes && this.#rulesRevision === this.#upstreams.rulesRevision;
    return isNow ? last.kept : undefined;
  }

  #keptOrMade(endpoint: EndpointId, principal: Principal): Kept {
    if (this.#rulesRevision !== this.#upstreams.rulesRevision) {
      this.#rulesRevision = this.#upstreams.rulesRevision;
      this.#changes++;
    }
    const key = viewKey(endpoint, principal);
    const kept = this.#kept.get(key);
    if (kept?.checkedAt === this.#changes) return kept;
    const servers = this.#serversOf(endpoint, principal);
    const madeOf = this.#madeOf(servers);
    const states = this.#states(servers);
    if (kept?.madeOf === madeOf) {
      kept.states = states;
      kept.checkedAt = this.#changes;
      return kept;
    }
    const isFiltered = servers.length < this.#namesAt(endpoint).length;
    const view = new View(this.#upstreams, endpoint, principal, servers, isFiltered, this.#tables, this.#clashed);
    const made: Kept = { view, madeOf, states, checkedAt: this.#changes };
    setBounded(this.#kept, key, made, viewsMax);
    return made;
  }

  #serversOf(endpoint: EndpointId, principal: Principal): string[] {
    return this.#namesAt(endpoint).filter((server) => this.#upstreams.isAllowed(principal, server, undefined));
  }

  #namesAt(endpoint: EndpointId): readonly string[] {
    const names = this.#upstreams.names();
    switch (endpoint.kind) {
      case 'all':
        return names;
      case 'server':
        return names.filter((name) => name === endpoint.server);
      case 'group': {
        const group = new Set(this.#upstreams.groups.get(endpoint.group));
        return names.filter((name) => group.has(name));
      }
    }
  }

  readonly #clashed: OnClash = (target, first) => {
    const clash = `${first} ${target.server}`;
    if (this.#clashes.has(clash) || this.#clashes.size >= clashesMax) return;
    this.#clashes.add(clash);
    this.#onClash(target, first);
  };

  #madeOf(servers: readonly string[]): string {
    const parts = servers.map((server) => {
      const known = this.#upstreams.known(server);
      return known ? `${server} ${known.revision} ${this.#numberOf(known.definition)}` : server;
    });
    return `${this.#rulesRevision}\n${parts.join('\n')}`;
  }

  #states(servers: readonly string[]): string {
    let states = '';
    for (const server of servers) {
      const known = this.#upstreams.known(server);
      // With its name: others who list the same may see other servers beside it.
      if (known && !known.isReady) states += `${server} ${known.state} `;
    }
    return states;
  }

  /** A definition that was read again may rename its tools, whatever its server lists. */
  #numberOf(definition: object): number {
    const number = this.#definitions.get(definition) ?? ++this.#lastDefinition;
    this.#definitions.set(definition, number);
    return number;
  }
}

export const viewKey = (endpoint: EndpointId, { id, role, scopes }: Principal): string =>
  `${endpointKey(endpoint)}\0${id}\0${role ?? ''}\0${role === undefined ? 0 : 1}\0${scopes.join(' ')}`;
