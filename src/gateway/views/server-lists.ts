/**
 * The lists of one server at one revision, reduced to the items that principals may see.
 * Not here: joining the lists of several servers (view.ts, table.ts).
 * Invariants: a ServerLists never changes; a new revision of the server gets a new one. Principals that see the same items get
 * the same `ListPart`, so lists are compared by identity. An unchanged entry keeps its `content` number in a new revision.
 */
import type { KnownServer, ShownItem } from '../../catalog/catalog-server.js';
import { renamed } from '../../config/tool-rules.js';
import { setBounded } from '../../kernel/bounded-map.js';
import { ruleAgainst } from '../../policy/allowlist.js';
import type { Principal } from '../../policy/operation.js';
import type { ListMethod } from '../../session/lists.js';
import type { Upstreams } from '../upstreams.js';
import { hasOurScheme, prefixed, startName, wrapUri } from './tool-names.js';

/** One item of a list with its shown name. */
export interface Entry {
  readonly server: string;
  /** The server's own name, URI or template. */
  readonly key: string;
  /** The name that clients see. */
  readonly name: string;
  /** The name of the entry, unless another entry prefers the same name. */
  readonly preferredName: string;
  readonly item: ShownItem;
  /** Number of the content. Two entries with equal numbers have the same bytes and the same name. */
  readonly content: number;
}

let lastPart = 0;
let lastContent = 0;

export class ListPart {
  readonly id = ++lastPart;
  /** Entries in the server's order. */
  readonly entries: readonly Entry[];
  /** True if rules hide some of the server's tools. */
  readonly isFiltered: boolean;
  #sorted: readonly Entry[] | undefined;

  constructor(entries: readonly Entry[], isFiltered: boolean) {
    this.entries = entries;
    this.isFiltered = isFiltered;
  }

  /** Entries sorted by key, in UTF-16 order. */
  get sorted(): readonly Entry[] {
    this.#sorted ??= [...this.entries].sort((a, b) => (a.key < b.key ? -1 : 1));
    return this.#sorted;
  }

  hasSameEntries(other: ListPart): boolean {
    const [a, b] = [this.entries, other.entries];
    return this === other || (a.length === b.length && a.every((entry, i) => isSame(entry, b[i] as Entry)));
  }
}

/** Entries with different numbers may be equal, if a list changed and changed back. Then the bytes decide. */
const isSame = (a: Entry, b: Entry): boolean =>
  a.content === b.content ||
  (a.key === b.key && a.name === b.name && a.server === b.server && a.item.raw.equals(b.item.raw));

/** The rights of all principals with one access key, under one revision of the rules. */
export class Access {
  /** Any principal with this access key. */
  readonly principal: Principal;
  readonly upstreams: Upstreams;
  /** The tools of each server, at an endpoint of one server (`#alone`) and of many (`#joined`). */
  readonly #alone = new WeakMap<ServerLists, ListPart>();
  readonly #joined = new WeakMap<ServerLists, ListPart>();

  constructor(upstreams: Upstreams, principal: Principal) {
    this.upstreams = upstreams;
    this.principal = principal;
  }

  allows(server: string, tool: string | undefined): boolean {
    return this.upstreams.isAllowed(this.principal, server, tool);
  }

  part(lists: ServerLists, method: ListMethod, isAlone: boolean): ListPart {
    if (method !== 'tools/list') return lists.whole(method, isAlone);
    const parts = isAlone ? this.#alone : this.#joined;
    let part = parts.get(lists);
    if (!part) {
      part = lists.tools(this, isAlone);
      parts.set(lists, part);
    }
    return part;
  }
}

/** Maximum number of cached subsets of one server's tools. Beyond it, equal subsets are compared entry by entry. */
const subsetsMax = 1_024;
/** Number of verdicts, one bit each, in one character of a subset's key. */
const verdictsPerChar = 15;

export class ServerLists {
  readonly server: string;
  /** Undefined if the server is being removed. */
  readonly known: KnownServer | undefined;
  readonly toolCount: number;
  readonly #fullLists = new Map<string, ListPart>();
  readonly #subsets = new Map<string, ListPart>();
  /** Lists of the previous revision, until the lists of this one are built. */
  readonly #previous: Map<string, ListPart>;

  constructor(server: string, known: KnownServer | undefined, before?: ServerLists) {
    this.server = server;
    this.known = known;
    this.toolCount = known?.lists.get('tools/list')?.items.length ?? 0;
    this.#previous = new Map(before ? [...before.#previous, ...before.#fullLists] : []);
  }

  /** The list before the rules of a principal hide items. */
  whole(method: ListMethod, isAlone: boolean): ListPart {
    const key = `${method} ${isAlone}`;
    let whole = this.#fullLists.get(key);
    if (!whole) {
      whole = new ListPart(this.#entries(method, isAlone, this.#previous.get(key)), false);
      this.#fullLists.set(key, whole);
      this.#previous.delete(key);
    }
    return whole;
  }

  tools(access: Access, isAlone: boolean): ListPart {
    const whole = this.whole('tools/list', isAlone);
    const { entries } = whole;
    let key = isAlone ? 'a' : 'j';
    let bits = 0;
    let hidden = 0;
    for (let i = 0; i < entries.length; i++) {
      if (access.allows(this.server, (entries[i] as Entry).key)) bits |= 1 << (i % verdictsPerChar);
      else hidden++;
      if (i % verdictsPerChar !== verdictsPerChar - 1 && i < entries.length - 1) continue;
      key += String.fromCharCode(bits);
      bits = 0;
    }
    if (hidden === 0) return whole;
    let cut = this.#subsets.get(key);
    if (!cut) {
      const isShown = (_: Entry, i: number) => {
        const verdicts = key.charCodeAt(1 + Math.floor(i / verdictsPerChar));
        return ((verdicts >> (i % verdictsPerChar)) & 1) === 1;
      };
      cut = new ListPart(entries.filter(isShown), true);
      setBounded(this.#subsets, key, cut, subsetsMax);
    }
    return cut;
  }

  #entries(method: ListMethod, isAlone: boolean, before: ListPart | undefined): Entry[] {
    const { server, known } = this;
    const items = known?.lists.get(method)?.items ?? [];
    const rules = method === 'tools/list' ? known?.definition.tools : undefined;
    const byKey = new Map(before?.entries.map((entry) => [entry.key, entry]));
    const taken = new Set<string>();
    const entries: Entry[] = [];
    for (const own of items) {
      const { key, joined } = own;
      const item = joined && !isAlone ? { ...own, raw: joined } : own;
      // Clients cannot request an item without a name, or with the name of an earlier item.
      if (key === '' || taken.has(key) || (rules && ruleAgainst(rules, key) !== undefined)) continue;
      taken.add(key);
      const { name, wanted } = namesOf(server, method, rules ? renamed(rules, key) : key, key, isAlone);
      const old = byKey.get(key);
      const isOld = old?.name === name && old.item.raw.equals(item.raw);
      entries.push({ server, key, name, preferredName: wanted, item, content: isOld ? old.content : ++lastContent });
    }
    return entries;
  }
}

/** The names of an item before collisions are resolved. `own`: the name after renaming by the operator. */
function namesOf(server: string, method: ListMethod, own: string, key: string, isAlone: boolean) {
  if (isAlone) return { name: own, wanted: own };
  if (method !== 'tools/list' && method !== 'prompts/list')
    return { name: hasOurScheme(own) ? wrapUri({ server, uri: own }) : own, wanted: own };
  const wanted = prefixed(server, own);
  return { name: startName({ server, tool: key, name: wanted }), wanted };
}
