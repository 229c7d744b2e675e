/**
 * One `subscriptions/listen` of a modern client, as long as it is open.
 * Not here: how many there may be (subscriptions.ts).
 * Invariants: it begins with what was granted, whatever happens meanwhile, and soon: what a server that has to be started grants
 * later is told of all the same, but not acknowledged; every message on it says which stream it is of; what
 * it holds is given back at its end.
 */
import type { Clock } from '../../kernel/clock.js';
import { spliceMeta } from '../../wire/json-edit.js';
import { memberString, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { eachElement } from '../../wire/json-scan.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import type { Exchange } from '../exchange.js';
import { SUBSCRIPTION_ID } from '../messages/request-meta.js';
import type { ServerInfoCache } from '../routing/server-info.js';
import type { Upstreams } from '../upstreams.js';
import { isAmbiguous, wrapParams } from '../views/shared-uris.js';
import type { UriTurns } from '../views/uri-turns.js';
import type { View } from '../views/view.js';
import type { Views } from '../views/views.js';
import { LIST_KINDS, type ListKind, type ListWatch } from './list-watch.js';

export const urisMax = 100;
export const uriCharsMax = 8_192;

/** For servers to grant what is asked of them before the client is told what it has. */
export const acknowledgeMsMax = 2_000;

export interface SubscriptionParts {
  readonly clock: Clock;
  readonly upstreams: Upstreams;
  readonly views: Views;
  readonly facts: ServerInfoCache;
  readonly lists: ListWatch;
  readonly turns: UriTurns;
}

export interface Wish {
  readonly kinds: readonly ListKind[];
  readonly uris: readonly string[];
}

const flags = [
  ['toolsListChanged', 'tools'],
  ['promptsListChanged', 'prompts'],
  ['resourcesListChanged', 'resources'],
] as const;

/** Undefined: nobody could say what is wanted. */
export function readWish(params: Buffer | undefined): Wish | undefined {
  const [filter] = (params && uniqueMembers(params, ['notifications'])) ?? [];
  const members = filter && uniqueMembers(filter, [...flags.map(([flag]) => flag), 'resourceSubscriptions']);
  if (!members) return undefined;
  const kinds = flags.flatMap(([, kind], i) => (members[i]?.toString('latin1') === 'true' ? [kind] : []));
  const list = members[flags.length];
  const uris = new Set<string>();
  if (list) {
    const after = eachElement(list, 0, list.length, 0, (start, end) => {
      const uri = stringOf(list.subarray(start, end));
      // More than may be had is not granted; which ones are, the first message says.
      if (uri !== undefined && uri.length <= uriCharsMax && uris.size < urisMax) uris.add(uri);
      return undefined;
    });
    if (after < 0) return undefined;
  }
  return { kinds, uris: [...uris] };
}

/** One `subscriptions/listen`, as long as it is open. */
export class ListenStream {
  readonly #exchange: Exchange;
  readonly #parts: SubscriptionParts;
  readonly #releases: (() => void)[] = [];
  /** What happened before the client was told what it is granted: at most one of each. */
  #early: Map<string, () => void> | undefined = new Map();
  #isOver = false;

  constructor(exchange: Exchange, parts: SubscriptionParts) {
    this.#exchange = exchange;
    this.#parts = parts;
  }

  open({ kinds, uris }: Wish): void {
    if (kinds.length > 0) {
      this.#releases.push(
        this.#parts.lists.watch(this.#exchange.client, (kind) => {
          if (kinds.includes(kind)) this.#tell(LIST_KINDS[kind].notification, kind, () => `{"_meta":{${this.#id()}}}`);
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

  /** Puts each URI that is granted into `granted`. */
  async #subscribeAll(uris: readonly string[], granted: Set<string>): Promise<void> {
    const { client } = this.#exchange;
    const viewNow = () => this.#parts.views.of(client.endpoint, client.principal);
    await viewNow().sight();
    const asked: Promise<void>[] = [];
    for (const uri of uris) {
      for (let turn = this.#parts.turns.wait(uri.length); turn; turn = this.#parts.turns.wait(uri.length)) await turn;
      if (this.#isOver) break;
      const subscribe = async () => {
        if (await this.#subscribe(uri, viewNow().findResource(uri))) granted.add(uri);
      };
      asked.push(subscribe());
    }
    await Promise.allSettled(asked);
  }

  /** Whether it was granted. */
  async #subscribe(uri: string, found: ReturnType<View['findResource']>): Promise<boolean> {
    const { client } = this.#exchange;
    try {
      if (!found || isAmbiguous(found)) return false;
      const { server } = found;
      const updated = (params: Buffer) => {
        // By the role it has now.
        if (!this.#parts.upstreams.isAllowed(this.#exchange.client.principal, server, undefined)) return;
        this.#tell(NOTIFICATION.resourceUpdated, `uri ${uri}`, () =>
          this.#marked(found.uri === uri ? params : wrapParams(params, server), uri),
        );
      };
      const release = await this.#parts.upstreams.subscribe(server, found.uri, client.principal, updated, client.id);
      if (this.#isOver) release();
      else this.#releases.push(release);
      return true;
    } catch {
      return false;
    }
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
    for (const tell of early?.values() ?? []) tell();
  }

  #tell(method: string, what: string, params: () => string | Buffer): void {
    if (this.#isOver) return;
    const tell = () => this.#exchange.notify(method, params());
    if (this.#early) this.#early.set(what, tell);
    else tell();
  }

  /** Where a server wrote a `_meta` that nothing can be put into, it is told in words of ours: nobody catches what is thrown here. */
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

  /** Nobody listens any more. */
  end(): void {
    this.#isOver = true;
    for (const release of this.#releases.splice(0)) release();
  }

  /** We stop; the client may listen elsewhere. */
  finish(): void {
    this.end();
    this.#exchange.succeed(`{"resultType":"complete","_meta":{${this.#id()}}}`);
  }
}
