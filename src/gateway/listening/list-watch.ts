/**
 * Tells clients that a list of theirs changed. Whatever happens at a server, only those are told whose own view became
 * another one, and not before the new list can be asked for.
 * Not here: subscriptions to single resources (subscriptions.ts).
 *
 * Invariants: changes that come together are told once; a server that starts or stops changes no list.
 */
import type { Clock } from '../../kernel/clock.js';
import type { ListMethod } from '../../session/lists.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import type { Client } from '../exchange.js';
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

/** All who see the same. */
interface Group {
  readonly client: Pick<Client, 'endpoint' | 'principal'>;
  readonly watchers: Set<(kind: ListKind) => void>;
  digests: Readonly<Record<ListKind, string>>;
}

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
    const key = viewKey(client.endpoint, client.principal);
    let group = this.#groups.get(key);
    if (!group) {
      const { endpoint, principal } = client;
      group = { client: { endpoint, principal }, watchers: new Set(), digests: this.#digests(client) };
      this.#groups.set(key, group);
    }
    const { watchers } = group;
    watchers.add(changed);
    return () => {
      watchers.delete(changed);
      if (watchers.size === 0 && this.#groups.get(key)?.watchers === watchers) this.#groups.delete(key);
    };
  }

  /** Something may be different. */
  changed(): void {
    if (this.#groups.size === 0) return;
    this.#cancel ??= this.#clock.at(this.#clock.nowMs() + gatherMs, () => {
      this.#cancel = undefined;
      this.#compare();
    });
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#groups.clear();
  }

  #compare(): void {
    for (const group of [...this.#groups.values()]) {
      const before = group.digests;
      const now = this.#digests(group.client);
      group.digests = now;
      for (const kind of kinds) {
        if (before[kind] === now[kind]) continue;
        for (const tell of [...group.watchers]) tell(kind);
      }
    }
  }

  #digests({ endpoint, principal }: Group['client']): Readonly<Record<ListKind, string>> {
    const view = this.#views.of(endpoint, principal);
    const of = (kind: ListKind) => LIST_KINDS[kind].methods.map((method) => view.table(method).digest).join(' ');
    return { tools: of('tools'), prompts: of('prompts'), resources: of('resources') };
  }
}
