/**
 * Notifies clients that one of their lists changed. Only clients whose own view changed are notified, once for changes that
 * occur together, and not before the new list can be read.
 * Not here: subscriptions to single resources (client-subscriptions.ts).
 * Invariants: a server that starts or stops changes no list. A client that received a list which is now outdated is notified,
 * even if the list has changed back. No run on the event loop takes much longer than `sliceMs`, for any number of clients.
 */
import type { Clock } from '../../kernel/clock.js';
import type { Principal } from '../../policy/operation.js';
import type { ListMethod } from '../../session/lists.js';
import { NOTIFICATION } from '../../wire/methods.js';
import type { Client, CurrentPrincipal } from '../exchange.js';
import { type EndpointId, endpointKey } from '../exchange.js';
import { showSame, type View } from '../views/view.js';
import type { Views } from '../views/views.js';

export type ListKind = 'tools' | 'prompts' | 'resources';

/** The notification of a change, and the lists that it covers. */
export const LIST_KINDS: Readonly<
  Record<ListKind, { readonly notification: string; readonly methods: readonly ListMethod[] }>
> = {
  tools: { notification: NOTIFICATION.toolsChanged, methods: ['tools/list'] },
  prompts: { notification: NOTIFICATION.promptsChanged, methods: ['prompts/list'] },
  resources: { notification: NOTIFICATION.resourcesChanged, methods: ['resources/list', 'resources/templates/list'] },
};
const kinds = Object.keys(LIST_KINDS) as ListKind[];

/** Delay that joins changes: a starting server reports several at once. */
const gatherMs = 25;
/** Time after which comparing yields to the event loop. */
const sliceMs = 3;

type Place = Pick<Client, 'endpoint' | 'principal'>;

interface Watcher {
  readonly endpoint: EndpointId;
  principal: Principal;
  /** The view at the last comparison. */
  seen: View;
  readonly notify: (kind: ListKind) => void;
}

interface SentList {
  readonly view: View;
  readonly kind: ListKind;
}

export class ListWatch {
  readonly #views: Views;
  readonly #clock: Clock;
  readonly #watchers = new Set<Watcher>();
  /** Watchers whose view is not compared yet. */
  readonly #pending = new Set<Watcher>();
  /** Lists that each client received while changes were collected or compared. */
  readonly #recordSent = new Map<string, SentList[]>();
  #cancel: (() => void) | undefined;
  #immediate: NodeJS.Immediate | undefined;
  /** Cached comparisons by the old view: many clients share both views. */
  readonly #compared = new Map<View, { readonly now: View; readonly changed: readonly ListKind[] }>();

  constructor(views: Views, clock: Clock) {
    this.#views = views;
    this.#clock = clock;
  }

  /** Returns a function that ends the watch. The limits of sessions and streams bound the number of watchers. */
  watch({ endpoint, principal }: Place, notify: (kind: ListKind) => void): () => void {
    const watcher: Watcher = { endpoint, principal, seen: this.#viewOf({ endpoint, principal }), notify };
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
      this.#pending.delete(watcher);
    };
  }

  /** Compares the lists of clients whose role has changed. */
  keysChanged(now: CurrentPrincipal): void {
    for (const watcher of this.#watchers) {
      const principal = now(watcher.principal);
      // The ingress ends the sessions and streams of a revoked key.
      if (!principal || principal === watcher.principal) continue;
      watcher.principal = principal;
      this.#pending.add(watcher);
    }
    this.#compare();
  }

  /** Schedules a comparison, because a list may have changed. */
  changed(): void {
    if (this.#watchers.size === 0) return;
    this.#cancel ??= this.#clock.at(this.#clock.nowMs() + gatherMs, () => {
      this.#cancel = undefined;
      for (const watcher of this.#watchers) this.#pending.add(watcher);
      this.#compare();
    });
  }

  /** Records a list that a client receives while changes are collected: it may be outdated when views are compared. */
  given(place: Place, method: ListMethod): void {
    if (this.#cancel === undefined && this.#pending.size === 0) return;
    const kind = kinds.find((each) => LIST_KINDS[each].methods.includes(method)) as ListKind;
    const view = this.#viewOf(place);
    const key = clientKey(place);
    const given = this.#recordSent.get(key) ?? [];
    if (given.some((each) => each.view === view && each.kind === kind)) return;
    given.push({ view, kind });
    this.#recordSent.set(key, given);
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    clearImmediate(this.#immediate);
    this.#watchers.clear();
    this.#pending.clear();
    this.#compared.clear();
    this.#recordSent.clear();
  }

  #compare(): void {
    clearImmediate(this.#immediate);
    const untilMs = this.#clock.nowMs() + sliceMs;
    for (const watcher of this.#pending) {
      this.#pending.delete(watcher);
      this.#compareOne(watcher);
      if (this.#clock.nowMs() < untilMs || this.#pending.size === 0) continue;
      this.#immediate = setImmediate(() => this.#compare());
      return;
    }
    this.#compared.clear();
    if (this.#cancel === undefined) this.#recordSent.clear();
  }

  #compareOne(watcher: Watcher): void {
    const before = watcher.seen;
    const now = this.#viewOf(watcher, before);
    watcher.seen = now;
    const given = this.#recordSent.size === 0 ? [] : (this.#recordSent.get(clientKey(watcher)) ?? []);
    const isOutdated = (kind: ListKind) => given.some((each) => each.kind === kind && !isSame(before, each.view, kind));
    const changed = this.#changedKinds(before, now);
    for (const kind of kinds) if (changed.includes(kind) || isOutdated(kind)) watcher.notify(kind);
  }

  #changedKinds(before: View, now: View): readonly ListKind[] {
    if (before === now) return [];
    const compared = this.#compared.get(before);
    if (compared?.now === now) return compared.changed;
    const changed = kinds.filter((kind) => !isSame(before, now, kind));
    this.#compared.set(before, { now, changed });
    return changed;
  }

  /** Builds all parts of the view now, because they cannot be built after the rules have changed. */
  #viewOf({ endpoint, principal }: Place, before?: View): View {
    const view = this.#views.of(endpoint, principal);
    if (view === before) return view;
    for (const kind of kinds) for (const method of LIST_KINDS[kind].methods) view.parts(method, before);
    return view;
  }
}

/** The role is not part of the key, because it may change while changes are collected. */
const clientKey = ({ endpoint, principal }: Place): string => `${endpointKey(endpoint)}\0${principal.id}`;

const isSame = (a: View, b: View, kind: ListKind): boolean =>
  LIST_KINDS[kind].methods.every((method) => showSame(a, b, method));
