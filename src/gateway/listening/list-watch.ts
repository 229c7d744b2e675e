/**
 * Tells clients that a list of theirs changed. Whatever happens at a server, only those are told whose own view became
 * another one, and not before the new list can be asked for.
 * Not here: subscriptions to single resources (subscriptions.ts).
 *
 * Invariants: changes that come together are told once; a server that starts or stops changes no list; whoever was given a list
 * that counts no more is told, also when it is the same again as before.
 */
import type { Clock } from '../../kernel/clock.js';
import type { ListMethod } from '../../session/lists.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import type { Client, PrincipalNow } from '../exchange.js';
import type { View } from '../views/view.js';
import { type Views, viewKey } from '../views/views.js';

export type ListKind = 'tools' | 'prompts' | 'resources';

/** Which notification tells of it, and the lists that are meant. */
export const LIST_KINDS: Readonly<
  Record<ListKind, { readonly told: string; readonly methods: readonly ListMethod[] }>
> = {
  tools: { told: NOTIFICATION.toolsChanged, methods: ['tools/list'] },
  prompts: { told: NOTIFICATION.promptsChanged, methods: ['prompts/list'] },
  resources: { told: NOTIFICATION.resourcesChanged, methods: ['resources/list', 'resources/templates/list'] },
};
const kinds = Object.keys(LIST_KINDS) as ListKind[];

/** A server that starts says several things at once. */
const gatherMs = 25;

interface Watcher {
  readonly tell: (kind: ListKind) => void;
  /** Another one once its principal has another role. */
  group: Group;
}

/** All who see the same. */
interface Group {
  readonly client: Pick<Client, 'endpoint' | 'principal'>;
  readonly watchers: Set<Watcher>;
  digests: Digests;
  /** Lists that were given out while a change was gathered, and that nobody was told of. */
  readonly given: Map<ListKind, string>;
}

type Digests = Readonly<Record<ListKind, string>>;

export class ListWatch {
  readonly #views: Views;
  readonly #clock: Clock;
  readonly #groups = new Map<string, Group>();
  #cancel: (() => void) | undefined;

  constructor(views: Views, clock: Clock) {
    this.#views = views;
    this.#clock = clock;
  }

  /** Told from now on; returns what ends it. Bounded by who may open sessions and streams. */
  watch(client: Pick<Client, 'endpoint' | 'principal'>, changed: (kind: ListKind) => void): () => void {
    const watcher: Watcher = { tell: changed, group: this.#groupOf(client) };
    watcher.group.watchers.add(watcher);
    return () => this.#leave(watcher);
  }

  /** Whoever has another role from now on is told of what is different for it. */
  rekeyed(now: PrincipalNow): void {
    for (const { client, watchers, digests } of [...this.#groups.values()]) {
      const principal = now(client.principal);
      // Who has no key any more is ended by whoever let it in.
      if (!principal || principal === client.principal) continue;
      const group = this.#groupOf({ endpoint: client.endpoint, principal });
      const moved = [...watchers];
      for (const watcher of moved) {
        this.#leave(watcher);
        watcher.group = group;
        group.watchers.add(watcher);
      }
      tellChanges(digests, group.digests, moved);
    }
  }

  #groupOf({ endpoint, principal }: Group['client']): Group {
    const key = viewKey(endpoint, principal);
    let group = this.#groups.get(key);
    if (!group) {
      const client = { endpoint, principal };
      group = { client, watchers: new Set(), digests: this.#digests(client), given: new Map() };
      this.#groups.set(key, group);
    }
    return group;
  }

  #leave(watcher: Watcher): void {
    const { client, watchers } = watcher.group;
    watchers.delete(watcher);
    const key = viewKey(client.endpoint, client.principal);
    if (watchers.size === 0 && this.#groups.get(key)?.watchers === watchers) this.#groups.delete(key);
  }

  /** Something may be different. */
  changed(): void {
    if (this.#groups.size === 0) return;
    this.#cancel ??= this.#clock.at(this.#clock.nowMs() + gatherMs, () => {
      this.#cancel = undefined;
      this.#compare();
    });
  }

  /** A list is given out: while a change is gathered it may be one that is gone again when the change is looked at. */
  given({ endpoint, principal }: Group['client'], method: ListMethod): void {
    if (this.#cancel === undefined) return;
    const group = this.#groups.get(viewKey(endpoint, principal));
    const kind = kinds.find((each) => LIST_KINDS[each].methods.includes(method));
    if (!group || kind === undefined) return;
    const digest = digestOf(this.#views.of(endpoint, principal), kind);
    if (digest !== group.digests[kind]) group.given.set(kind, digest);
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#groups.clear();
  }

  #compare(): void {
    for (const group of [...this.#groups.values()]) {
      const now = this.#digests(group.client);
      // What was given out on the way counts as what was last known.
      const before = { ...group.digests };
      for (const [kind, digest] of group.given) if (before[kind] === now[kind]) before[kind] = digest;
      group.given.clear();
      group.digests = now;
      tellChanges(before, now, [...group.watchers]);
    }
  }

  #digests({ endpoint, principal }: Group['client']): Digests {
    const view = this.#views.of(endpoint, principal);
    const of = (kind: ListKind) => digestOf(view, kind);
    return { tools: of('tools'), prompts: of('prompts'), resources: of('resources') };
  }
}

const digestOf = (view: View, kind: ListKind): string =>
  LIST_KINDS[kind].methods.map((method) => view.table(method).digest).join(' ');

function tellChanges(before: Digests, now: Digests, watchers: readonly Watcher[]): void {
  for (const kind of kinds) {
    if (before[kind] === now[kind]) continue;
    for (const { tell } of watchers) tell(kind);
  }
}
