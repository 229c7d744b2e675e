/**
 * What one principal sees at one endpoint: the servers, and by their shown names the tools, prompts and resources.
 * Not here: the bytes of the lists (prepared-list.ts), when a view is made anew (views.ts).
 *
 * Invariants: what is not shown cannot be found; a name stands for one item of one server; the order is that of the servers, and
 * within one its own.
 */

import type { KnownServer } from '../../catalog/catalog-server.js';
import { renamed } from '../../config/tool-rules.js';
import type { Principal } from '../../policy/call.js';
import { ruleAgainst } from '../../policy/tool-rules-guard.js';
import type { ListedItem, ListMethod } from '../../session/lists.js';
import { memberBytes } from '../../wire/json-members.js';
import type { EndpointId } from '../endpoint-id.js';
import type { Upstreams } from '../upstreams.js';
import { type AmbiguousResource, hasOurScheme, type ResourceTarget, unwrapUri, wrapUri } from './shared-uris.js';
import type { Entry, Table, Tables } from './table.js';
import { TemplateRoutes, type UnroutedTemplate } from './template-routes.js';
import { prefixed, uniqueNames, type Wanted } from './tool-names.js';
import { UriText } from './uri-templates.js';

/** Where a tool call goes. */
export interface ToolTarget {
  readonly server: string;
  readonly tool: string;
}

/** Another server has this one already. */
export type OnClash = (target: ResourceTarget, first: string) => void;

export class View {
  readonly endpoint: EndpointId;
  readonly principal: Principal;
  /** Those that are seen, in their order. */
  readonly servers: readonly string[];
  /** There are servers here that this principal does not see. */
  readonly #isFiltered: boolean;
  readonly #upstreams: Upstreams;
  readonly #interned: Tables;
  readonly #onClash: OnClash;
  readonly #tables = new Map<ListMethod, Table>();
  /** Each of its servers was: one that is defined anew, and so unseen again, is in another view. */
  #isSeen = false;
  #routes: TemplateRoutes | undefined;
  /** URIs and templates that several servers list, with these servers. */
  readonly #shared = new Map<string, string[]>();

  constructor(
    upstreams: Upstreams,
    endpoint: EndpointId,
    principal: Principal,
    servers: readonly string[],
    isFiltered: boolean,
    tables: Tables,
    onClash: OnClash = noClash,
  ) {
    this.#onClash = onClash;
    this.#interned = tables;
    this.#upstreams = upstreams;
    this.#isFiltered = isFiltered;
    this.endpoint = endpoint;
    this.principal = principal;
    this.servers = servers;
  }

  /** The one server whose own words are spoken here. */
  get only(): string | undefined {
    return this.endpoint.kind === 'server' ? this.endpoint.server : undefined;
  }

  /** As upstreams have it. */
  get carried(): string | undefined {
    return this.#upstreams.carried;
  }

  known(server: string): KnownServer | undefined {
    return this.#upstreams.known(server);
  }

  /** What to wait for before anything is said of all that is here; undefined when each server was seen once. */
  sight(): Promise<void> | undefined {
    if (this.#isSeen) return undefined;
    const unseen = this.servers.filter((server) => this.known(server)?.facts === undefined);
    if (unseen.length > 0) return this.#upstreams.startupListing(unseen);
    this.#isSeen = true;
    return undefined;
  }

  table(method: ListMethod): Table {
    let table = this.#tables.get(method);
    if (!table) {
      table = this.#build(method);
      this.#tables.set(method, table);
    }
    return table;
  }

  findTool(name: string): ToolTarget | undefined {
    const entry = this.table('tools/list').byName.get(name);
    if (entry) return { server: entry.server, tool: entry.key };
    return this.#unlistedTool(name);
  }

  findPrompt(name: string): Entry | undefined {
    return this.table('prompts/list').byName.get(name);
  }

  /** The server that a URI, or the text of a template, belongs to, and what it is called there. */
  findResource(uri: string): ResourceTarget | AmbiguousResource | undefined {
    const listed =
      this.table('resources/list').byName.get(uri) ?? this.table('resources/templates/list').byName.get(uri);
    if (listed) return { server: listed.server, uri: listed.key };
    const only = this.#onlyWithResources();
    if (this.only === undefined) {
      if (hasOurScheme(uri)) return this.#unwrapped(uri);
      const servers =
        this.#shared.get(uri) ?? (only === undefined ? this.#routesNow().serversOf(new UriText(uri)) : []);
      if (servers.length > 1) return { servers };
      const [server] = servers;
      if (server !== undefined) return { server, uri, isByTemplate: true };
    }
    return only === undefined ? undefined : { server: only, uri, isByTemplate: this.only === undefined };
  }

  /** Templates of its servers that no URI is matched against here; at the endpoint of one server every URI is that server's. */
  unroutedTemplates(): readonly UnroutedTemplate[] {
    return this.#onlyWithResources() === undefined ? this.#routesNow().unrouted : [];
  }

  #routesNow(): TemplateRoutes {
    this.#routes ??= new TemplateRoutes(this.table('resources/templates/list').entries);
    return this.#routes;
  }

  #unwrapped(uri: string): ResourceTarget | undefined {
    const wrapped = unwrapUri(uri);
    return wrapped && this.servers.includes(wrapped.server) ? wrapped : undefined;
  }

  #onlyWithResources(): string | undefined {
    if (this.only !== undefined) return this.only;
    const offering = this.servers.filter((server) => offers(this.known(server), 'resources'));
    return offering.length === 1 ? offering[0] : undefined;
  }

  /** Of a server whose tools were never read nobody can say that it has no such tool; it will say so itself. */
  #unlistedTool(name: string): ToolTarget | undefined {
    for (const server of this.servers) {
      const known = this.known(server);
      if (!known || known.lists.has('tools/list')) continue;
      if (known.facts && !offers(known, 'tools')) continue;
      const start = this.only === undefined ? prefixed(server, '') : '';
      if (!name.startsWith(start) || name.length === start.length) continue;
      const tool = name.slice(start.length);
      const isOffered = ruleAgainst(known.definition.tools, tool) === undefined;
      if (isOffered && this.#upstreams.isAllowed(this.principal, server, tool)) return { server, tool };
    }
    return undefined;
  }

  /** A URI that two servers list is shown behind ours for both. `onClash` is called for the second and each further one. */
  #shownUris(found: readonly Wanted[]): string[] {
    if (this.only !== undefined) return found.map(({ name }) => name);
    const owners = new Map<string, string[]>();
    for (const { server, tool: uri } of found) {
      const servers = owners.get(uri);
      if (servers === undefined) owners.set(uri, [server]);
      else {
        this.#onClash({ server, uri }, servers[0] as string);
        servers.push(server);
        this.#shared.set(uri, servers);
      }
    }
    return found.map(({ server, tool: uri }) =>
      hasOurScheme(uri) || (owners.get(uri)?.length ?? 0) > 1 ? wrapUri({ server, uri }) : uri,
    );
  }

  #build(method: ListMethod): Table {
    const found: (Wanted & { readonly item: ListedItem })[] = [];
    const isNamed = method === 'tools/list' || method === 'prompts/list';
    let ttlMs = Number.POSITIVE_INFINITY;
    // What depends on who asks must not be kept for others.
    let isPublic = this.principal.role === undefined && !this.#isFiltered;
    for (const server of this.servers) {
      const known = this.known(server);
      const list = known?.lists.get(method);
      if (!known || !list) {
        if (!known?.facts) ttlMs = 0;
        continue;
      }
      ttlMs = Math.min(ttlMs, list.ttlMs);
      isPublic &&= list.isPublic;
      const rules = method === 'tools/list' ? known.definition.tools : undefined;
      const own = new Set<string>();
      for (const item of list.items) {
        const { key } = item;
        // Nobody could ask for what has no name, nor for the second of one name.
        if (key === '' || own.has(key)) continue;
        if (rules) {
          if (ruleAgainst(rules, key) !== undefined) continue;
          if (!this.#upstreams.isAllowed(this.principal, server, key)) {
            isPublic = false;
            continue;
          }
        }
        own.add(key);
        const name = rules ? renamed(rules, key) : key;
        found.push({
          server,
          tool: key,
          name: isNamed && this.only === undefined ? prefixed(server, name) : name,
          item,
        });
      }
    }
    const names = isNamed ? uniqueNames(found, this.only !== undefined) : this.#shownUris(found);
    const entries = found.map(({ server, tool, item }, i) => ({ server, key: tool, name: names[i] as string, item }));
    return this.#interned.intern(entries, Number.isFinite(ttlMs) ? ttlMs : 0, isPublic && entries.length > 0);
  }
}

const noClash: OnClash = () => {};

type Offer = 'tools' | 'prompts' | 'resources' | 'completions' | 'logging';
const listsOf: Partial<Record<Offer, readonly ListMethod[]>> = {
  tools: ['tools/list'],
  prompts: ['prompts/list'],
  resources: ['resources/list', 'resources/templates/list'],
};

/** By what the server says of itself; before it ever did, by what it is known to have listed. */
export function offers(known: KnownServer | undefined, offer: Offer): boolean {
  if (known?.facts) return memberBytes(known.facts.capabilities, offer) !== undefined;
  return listsOf[offer]?.some((method) => (known?.lists.get(method)?.items.length ?? 0) > 0) ?? false;
}
