/**
 * The servers, tools, prompts and resources that principals with equal rights see at one endpoint, by their shown names.
 * Not here: the bytes of the lists (list-pages.ts), replacing a view (views.ts).
 * Invariants: a hidden item cannot be found. A view never changes, except for the states of its servers.
 */
import type { KnownServer } from '../../catalog/catalog-server.js';
import type { UnroutedTemplates } from '../../host/status.js';
import { ruleAgainst } from '../../policy/allowlist.js';
import type { ListMethod } from '../../session/lists.js';
import { memberBytes } from '../../wire/json-members.js';
import type { EndpointId } from '../exchange.js';
import type { Access, Entry, ListPart, ServerLists } from './server-lists.js';
import type { Table, Tables } from './table.js';
import { TemplateRoutes, unroutedByServer } from './template-routes.js';
import { type AmbiguousResource, hasOurScheme, prefixed, type ResourceTarget, unwrapUri } from './tool-names.js';
import { UriText } from './uri-templates.js';

export interface ToolTarget {
  readonly server: string;
  readonly tool: string;
}

export class View {
  readonly endpoint: EndpointId;
  readonly access: Access;
  /** Visible servers in the order of the lists. */
  readonly servers: readonly string[];
  readonly lists: readonly ServerLists[];
  /** True if the endpoint has servers that these principals do not see. */
  readonly isFiltered: boolean;
  /** Number of tools before rules hide some of them. */
  readonly toolsMax: number;
  readonly #allTables: Tables;
  readonly #tables = new Map<ListMethod, Table>();
  readonly #parts = new Map<ListMethod, readonly ListPart[]>();
  /** True if facts of every server are known. A redefined server gets a new view. */
  #isSeen = false;
  #routes: TemplateRoutes | undefined;
  #unrouted: ReadonlyMap<string, UnroutedTemplates> | undefined;
  /** Null: not computed yet. */
  #onlyWithResources: string | undefined | null = null;

  constructor(
    endpoint: EndpointId,
    access: Access,
    lists: readonly ServerLists[],
    isFiltered: boolean,
    tables: Tables,
  ) {
    this.#allTables = tables;
    this.isFiltered = isFiltered;
    this.endpoint = endpoint;
    this.access = access;
    this.lists = lists;
    this.servers = lists.map(({ server }) => server);
    this.toolsMax = lists.reduce((sum, { toolCount }) => sum + toolCount, 0);
  }

  /** The server of a one-server endpoint, which shows the server's own names. */
  get only(): string | undefined {
    return this.endpoint.kind === 'server' ? this.endpoint.server : undefined;
  }

  get carried(): string | undefined {
    return this.access.upstreams.carried;
  }

  known(server: string): KnownServer | undefined {
    return this.access.upstreams.known(server);
  }

  /** Resolves when the first listing of every server has settled, or its time is over; undefined if none is pending. */
  startupListing(): Promise<void> | undefined {
    if (this.#isSeen) return undefined;
    const unseen = this.servers.filter((server) => this.known(server)?.facts === undefined);
    if (unseen.length > 0) return this.access.upstreams.startupListing(unseen);
    this.#isSeen = true;
    return undefined;
  }

  /** The parts of a list, one per server. Parts of unchanged servers are the same objects as in the view `before`. */
  parts(method: ListMethod, before?: View): readonly ListPart[] {
    let parts = this.#parts.get(method);
    if (!parts) {
      const isAlone = this.only !== undefined;
      const old = before?.access === this.access ? before.#parts.get(method) : undefined;
      parts = this.lists.map((lists, i) =>
        old && before?.lists[i] === lists ? (old[i] as ListPart) : this.access.part(lists, method, isAlone),
      );
      this.#parts.set(method, parts);
    }
    return parts;
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

  /** Finds the server of a URI or template text, and the server's own name for it. */
  findResource(uri: string): ResourceTarget | AmbiguousResource | undefined {
    const resources = this.table('resources/list');
    const templates = this.table('resources/templates/list');
    const listed = resources.byName.get(uri) ?? templates.byName.get(uri);
    if (listed) return { server: listed.server, uri: listed.key };
    const only = this.#onlyServerWithResources();
    if (this.only === undefined) {
      if (hasOurScheme(uri)) return this.#unwrapped(uri);
      const servers =
        templates.shared.get(uri) ??
        resources.shared.get(uri) ??
        (only === undefined ? this.#templateRoutes().serversOf(new UriText(uri)) : []);
      if (servers.length > 1) return { servers };
      const [server] = servers;
      if (server !== undefined) return { server, uri, isByTemplate: true };
    }
    return only === undefined ? undefined : { server: only, uri, isByTemplate: this.only === undefined };
  }

  /** Templates of a server that no URI is matched against. If only one server has resources, it gets every URI. */
  unroutedOf(server: string): UnroutedTemplates | undefined {
    if (this.#onlyServerWithResources() !== undefined) return undefined;
    this.#unrouted ??= unroutedByServer(this.#templateRoutes().unrouted);
    return this.#unrouted.get(server);
  }

  #templateRoutes(): TemplateRoutes {
    this.#routes ??= new TemplateRoutes(this.table('resources/templates/list').entries);
    return this.#routes;
  }

  #unwrapped(uri: string): ResourceTarget | undefined {
    const wrapped = unwrapUri(uri);
    return wrapped && this.servers.includes(wrapped.server) ? wrapped : undefined;
  }

  #onlyServerWithResources(): string | undefined {
    if (this.only !== undefined) return this.only;
    if (this.#onlyWithResources === null) {
      const offering = this.lists.filter(({ known }) => offers(known, 'resources'));
      this.#onlyWithResources = offering.length === 1 ? offering[0]?.server : undefined;
    }
    return this.#onlyWithResources;
  }

  /** A server whose tools were never listed may have any tool; it refuses unknown ones itself. */
  #unlistedTool(name: string): ToolTarget | undefined {
    for (const { server, known } of this.lists) {
      if (!known || known.lists.has('tools/list')) continue;
      if (known.facts && !offers(known, 'tools')) continue;
      const start = this.only === undefined ? prefixed(server, '') : '';
      if (!name.startsWith(start) || name.length === start.length) continue;
      const tool = name.slice(start.length);
      const isOffered = ruleAgainst(known.definition.tools, tool) === undefined;
      if (isOffered && this.access.allows(server, tool)) return { server, tool };
    }
    return undefined;
  }

  #build(method: ListMethod): Table {
    const parts = this.parts(method);
    let ttlMs = Number.POSITIVE_INFINITY;
    // A list that depends on the caller must not be cached for others.
    let isPublic = this.access.principal.role === undefined && !this.isFiltered;
    let count = 0;
    this.lists.forEach(({ known }, i) => {
      const list = known?.lists.get(method);
      const { entries, isFiltered } = parts[i] as ListPart;
      count += entries.length;
      if (list) {
        ttlMs = Math.min(ttlMs, list.ttlMs);
        isPublic &&= list.isPublic && !isFiltered;
      } else if (!known?.facts) ttlMs = 0;
    });
    const kind = method === 'tools/list' || method === 'prompts/list' ? 'names' : 'uris';
    const shownTtlMs = Number.isFinite(ttlMs) ? ttlMs : 0;
    return this.#allTables.of(kind, parts, this.only !== undefined, shownTtlMs, isPublic && count > 0);
  }
}

/** Whether two views of one endpoint show the same list. */
export function showSame(a: View, b: View, method: ListMethod): boolean {
  if (a === b) return true;
  const [one, other] = [a.parts(method), b.parts(method, a)];
  if (one.length === other.length && one.every((part, i) => part === other[i])) return true;
  // A server without entries does not change the list.
  const [shown, others] = [one, other].map((parts) => parts.filter(({ entries }) => entries.length > 0));
  return shown?.length === others?.length && !!shown?.every((part, i) => part.hasSameEntries(others?.[i] as ListPart));
}

type Offer = 'tools' | 'prompts' | 'resources' | 'completions' | 'logging';
const listsOf: Partial<Record<Offer, readonly ListMethod[]>> = {
  tools: ['tools/list'],
  prompts: ['prompts/list'],
  resources: ['resources/list', 'resources/templates/list'],
};

/** Decides by the server's capabilities, or by its known lists if the capabilities are unknown. */
export function offers(known: KnownServer | undefined, offer: Offer): boolean {
  if (known?.facts) return memberBytes(known.facts.capabilities, offer) !== undefined;
  return listsOf[offer]?.some((method) => (known?.lists.get(method)?.items.length ?? 0) > 0) ?? false;
}
