/**
 * The lists of one server at one revision, cut down to what principals may see.
 * Not here: joining the lists of several servers (view.ts, table.ts).
 *
 * Invariants: an instance never changes; a new revision of the server gets a new one. Principals that see the same items get the
 * same `ListPart`, so that lists are compared by identity. An entry that a new revision leaves as it was keeps its `content` number.
 */
import type { KnownServer } from '../../catalog/catalog-server.js';
import { renamed } from '../../config/tool-rules.js';
import { setBounded } from '../../kernel/bounded-map.js';
import { ruleAgainst } from '../../policy/allowlist.js';
import type { Principal } from '../../policy/operation.js';
import type { ListedItem, ListMethod } from '../../session/lists.js';
import type { Upstreams } from '../upstreams.js';
import { hasOurScheme, wrapUri } from './hostler-uris.js';
import { prefixed, startName } from './tool-names.js';

/** One item of a list, as it is shown. */
export interface Entry {
  readonly server: string;
  /** The server's own name for it: a name, a URI or a template. */
  readonly key: string;
  /** The name it is shown under. */
  readonly name: string;
  /** The name it would have if no other entry had the same. */
  readonly wanted: string;
  readonly item: ListedItem;
  /** Equal for two entries of one key: they show the same bytes under the same name. */
  readonly content: number;
}

let lastPart = 0;
let lastContent = 0;

/** One server's part of a list. */
export class ListPart {
  readonly id = ++lastPart;
  /** In the server's order. */
  readonly entries: readonly Entry[];
  /** Rules hide some of the server's tools. */
  readonly isFiltered: boolean;
  #sorted: readonly Entry[] | undefined;

  constructor(entries: readonly Entry[], isFiltered: boolean) {
    this.entries = entries;
    this.isFiltered = isFiltered;
  }

  /** By key, in UTF-16 order. */
  get sorted(): readonly Entry[] {
    this.#sorted ??= [...this.entries].sort((a, b) => (a.key < b.key ? -1 : 1));
    return this.#sorted;
  }

  shows(other: ListPart): boolean {
    const [a, b] = [this.entries, other.entries];
    return this === other || (a.length === b.length && a.every((entry, i) => isSame(entry, b[i] as Entry)));
  }
}

/** The bytes decide where the numbers differ: a list may have changed and changed back. */
const isSame = (a: Entry, b: Entry): boolean =>
  a.content === b.content ||
  (a.key === b.key && a.name === b.name && a.server === b.server && a.item.raw.equals(b.item.raw));

/** What all principals with one access key may see, under one revision of the rules. */
export class Access {
  /** One of them. */
  readonly principal: Principal;
  readonly upstreams: Upstreams;
  /** The tools of each server, as an endpoint of one server and as one of many shows them. */
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

/** Different cuts of one server's tools that are shared by identity; past it, equal cuts are compared entry by entry. */
const cutsMax = 1_024;
/** How many verdicts fit into one character of a cut's key. */
const verdictsPerChar = 15;

export class ServerLists {
  readonly server: string;
  /** Undefined: the server is about to be gone. */
  readonly known: KnownServer | undefined;
  readonly toolCount: number;
  readonly #wholes = new Map<string, ListPart>();
  readonly #cuts = new Map<string, ListPart>();
  /** The last lists of the revision before, until those of this one are made. */
  readonly #before: Map<string, ListPart>;

  constructor(server: string, known: KnownServer | undefined, before?: ServerLists) {
    this.server = server;
    this.known = known;
    this.toolCount = known?.lists.get('tools/list')?.items.length ?? 0;
    this.#before = new Map(before ? [...before.#before, ...before.#wholes] : []);
  }

  /** A list without the rules of any principal. */
  whole(method: ListMethod, isAlone: boolean): ListPart {
    const key = `${method} ${isAlone}`;
    let whole = this.#wholes.get(key);
    if (!whole) {
      whole = new ListPart(this.#entries(method, isAlone, this.#before.get(key)), false);
      this.#wholes.set(key, whole);
      this.#before.delete(key);
    }
    return whole;
  }

  /** The tools that `access` allows. */
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
    let cut = this.#cuts.get(key);
    if (!cut) {
      const isShown = (_: Entry, i: number) => {
        const verdicts = key.charCodeAt(1 + Math.floor(i / verdictsPerChar));
        return ((verdicts >> (i % verdictsPerChar)) & 1) === 1;
      };
      cut = new ListPart(entries.filter(isShown), true);
      setBounded(this.#cuts, key, cut, cutsMax);
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
    for (const item of items) {
      const { key } = item;
      // An item without a name, or with the name of an earlier one, cannot be asked for.
      if (key === '' || taken.has(key) || (rules && ruleAgainst(rules, key) !== undefined)) continue;
      taken.add(key);
      const { name, wanted } = namesOf(server, method, rules ? renamed(rules, key) : key, key, isAlone);
      const old = byKey.get(key);
      const isOld = old?.name === name && old.item.raw.equals(item.raw);
      entries.push({ server, key, name, wanted, item, content: isOld ? old.content : ++lastContent });
    }
    return entries;
  }
}

/** The names of an item that no other item has. `own`: as the operator calls it. */
function namesOf(server: string, method: ListMethod, own: string, key: string, isAlone: boolean) {
  if (isAlone) return { name: own, wanted: own };
  if (method !== 'tools/list' && method !== 'prompts/list')
    return { name: hasOurScheme(own) ? wrapUri({ server, uri: own }) : own, wanted: own };
  const wanted = prefixed(server, own);
  return { name: startName({ server, tool: key, name: wanted }), wanted };
}
