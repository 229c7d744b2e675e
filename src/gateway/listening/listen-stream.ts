/**
 * One `subscriptions/listen` stream of a modern client.
 * Not here: the limits on the number of streams (client-subscriptions.ts).
 * Invariants: the acknowledgement is the first message, at most `acknowledgeMsMax` after the request. A resource that is
 * granted later is not acknowledged, but its updates are sent. Every message has the stream id. The end releases all
 * subscriptions.
 */
import type { Clock } from '../../kernel/clock.js';
import { SUBSCRIPTION_ID } from '../../session/eras/modern/protocol.js';
import { spliceMeta } from '../../wire/json-edit.js';
import { memberString, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { eachElement } from '../../wire/json-scan.js';
import { NOTIFICATION } from '../../wire/methods.js';
import type { Client, Exchange } from '../exchange.js';
import type { ServerInfoCache } from '../routing/capabilities.js';
import type { Upstreams } from '../upstreams.js';
import { isAmbiguous, type ResourceTarget, wrapParams } from '../views/tool-names.js';
import type { MatchPacer } from '../views/uri-templates.js';
import type { Views } from '../views/views.js';
import { LIST_KINDS, type ListKind, type ListWatch } from './list-watch.js';

export const urisMax = 100;
export const uriCharsMax = 8_192;

/** How long the acknowledgement waits for servers to grant subscriptions. */
const acknowledgeMsMax = 2_000;

export interface SubscriptionParts {
  readonly clock: Clock;
  readonly upstreams: Upstreams;
  readonly views: Views;
  readonly servers: ServerInfoCache;
  readonly lists: ListWatch;
  readonly pacer: MatchPacer;
}

/** Subscribes the client to a resource that it knows as `uri`. Returns a function that ends the subscription. */
export function subscribe(
  { upstreams }: SubscriptionParts,
  client: () => Pick<Client, 'id' | 'principal'>,
  uri: string,
  target: ResourceTarget,
  notify: (params: Buffer) => void,
): Promise<() => void> {
  const { server } = target;
  const updated = (params: Buffer) => {
    // The client's role may have changed since it subscribed.
    if (!upstreams.isAllowed(client().principal, server, undefined)) return;
    notify(target.uri === uri ? params : wrapParams(params, server));
  };
  const { principal, id } = client();
  return upstreams.subscribe(server, target.uri, principal, updated, id);
}

export interface ListenFilter {
  readonly kinds: readonly ListKind[];
  readonly uris: readonly string[];
}

const flags = [
  ['toolsListChanged', 'tools'],
  ['promptsListChanged', 'prompts'],
  ['resourcesListChanged', 'resources'],
] as const;

/** Returns undefined for params without a valid filter. */
export function readFilter(params: Buffer | undefined): ListenFilter | undefined {
  const [filter] = (params && uniqueMembers(params, ['notifications'])) ?? [];
  const members = filter && uniqueMembers(filter, [...flags.map(([flag]) => flag), 'resourceSubscriptions']);
  if (!members) return undefined;
  const kinds = flags.flatMap(([, kind], i) => (members[i]?.toString('latin1') === 'true' ? [kind] : []));
  const list = members[flags.length];
  const uris = new Set<string>();
  if (list) {
    const after = eachElement(list, 0, list.length, 0, (start, end) => {
      const uri = stringOf(list.subarray(start, end));
      // URIs beyond the limits are not granted, so the acknowledgement does not list them.
      if (uri !== undefined && uri.length <= uriCharsMax && uris.size < urisMax) uris.add(uri);
      return undefined;
    });
    if (after < 0) return undefined;
  }
  return { kinds, uris: [...uris] };
}

export class ListenStream {
  readonly #exchange: Exchange;
  readonly #parts: SubscriptionParts;
  readonly #releases: (() => void)[] = [];
  /** The last notification of each kind before the acknowledgement. Undefined afterwards. */
  #early: Map<string, () => void> | undefined = new Map();
  #isOver = false;

  constructor(exchange: Exchange, parts: SubscriptionParts) {
    this.#exchange = exchange;
    this.#parts = parts;
  }

  open({ kinds, uris }: ListenFilter): void {
    if (kinds.length > 0) {
      this.#releases.push(
        this.#parts.lists.watch(this.#exchange.client, (kind) => {
          if (kinds.includes(kind))
            this.#notify(LIST_KINDS[kind].notification, kind, () => `{"_meta":{${this.#id()}}}`);
        }),
      );
    }
    if (uris.length === 0) return this.#acknowledge(kinds, []);
    const granted = new Set<string>();
    const acknowledge = () => {
      cancel();
      this.#acknowledge(
        kinds,
        uris.filter((uri) => granted.has(uri)),
      );
    };
    const { clock } = this.#parts;
    const cancel = clock.at(clock.nowMs() + acknowledgeMsMax, acknowledge);
    this.#releases.push(cancel);
    void this.#subscribeAll(uris, granted).then(acknowledge, acknowledge);
  }

  async #subscribeAll(uris: readonly string[], granted: Set<string>): Promise<void> {
    const { client } = this.#exchange;
    const { pacer, views } = this.#parts;
    const viewNow = () => views.of(client.endpoint, client.principal);
    await viewNow().startupListing();
    const subscribing: Promise<void>[] = [];
    for (const uri of uris) {
      for (let turn = pacer.wait(uri.length); turn; turn = pacer.wait(uri.length)) await turn;
      if (this.#isOver) break;
      const found = viewNow().findResource(uri);
      if (!found || isAmbiguous(found)) continue;
      // Rejections are handled here: the loop may wait before it awaits the promises, and an unhandled rejection ends the process.
      subscribing.push(
        this.#subscribe(uri, found).then(
          () => void granted.add(uri),
          () => {},
        ),
      );
    }
    await Promise.all(subscribing);
  }

  async #subscribe(uri: string, target: ResourceTarget): Promise<void> {
    const release = await subscribe(
      this.#parts,
      () => this.#exchange.client,
      uri,
      target,
      (params) => this.#notify(NOTIFICATION.resourceUpdated, `uri ${uri}`, () => this.#marked(params, uri)),
    );
    if (this.#isOver) release();
    else this.#releases.push(release);
  }

  #acknowledge(kinds: readonly ListKind[], uris: readonly string[]): void {
    if (this.#isOver || !this.#early) return;
    const granted = Object.fromEntries(flags.flatMap(([flag, kind]) => (kinds.includes(kind) ? [[flag, true]] : [])));
    const honoured = { ...granted, ...(uris.length > 0 ? { resourceSubscriptions: uris } : {}) };
    this.#exchange.notify(
      'notifications/subscriptions/acknowledged',
      `{"notifications":${JSON.stringify(honoured)},"_meta":{${this.#id()}}}`,
    );
    const early = this.#early;
    this.#early = undefined;
    for (const notify of early?.values() ?? []) notify();
  }

  #notify(method: string, what: string, params: () => string | Buffer): void {
    if (this.#isOver) return;
    const notify = () => this.#exchange.notify(method, params());
    if (this.#early) this.#early.set(what, notify);
    else notify();
  }

  /** Adds the stream id to the params. If their `_meta` is not an object, new params replace them. */
  #marked(params: Buffer, uri: string): string | Buffer {
    try {
      return spliceMeta(params, [[SUBSCRIPTION_ID, this.#exchange.idText]]);
    } catch {
      return `{"uri":${JSON.stringify(memberString(params, 'uri') ?? uri)},"_meta":{${this.#id()}}}`;
    }
  }

  #id(): string {
    return `"${SUBSCRIPTION_ID}":${this.#exchange.idText}`;
  }

  /** Releases all subscriptions. Nothing is sent afterwards. */
  end(): void {
    this.#isOver = true;
    for (const release of this.#releases.splice(0)) release();
  }

  /** Ends the stream with a result because the gateway stops. */
  finish(): void {
    this.end();
    this.#exchange.succeed(`{"resultType":"complete","_meta":{${this.#id()}}}`);
  }
}
