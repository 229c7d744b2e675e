/**
 * Clients that want to hear of single resources: `resources/subscribe` of legacy sessions and `subscriptions/listen` of modern
 * clients, both over the subscriptions that the host holds at the servers.
 * Not here: noticing that a list changed (list-watch.ts).
 *
 * Invariants: what is subscribed to is given back when its session or stream ends, also when it came too late to be used; a
 * modern stream begins with what was granted, and every message on it says which stream it is of.
 */
import { ERRORS } from '../kernel/errors.js';
import { stringOf } from '../wire/json-members.js';
import { eachElement } from '../wire/json-scan.js';
import { spliceMeta } from '../wire/meta-splice.js';
import { NOTIFICATION, RPC } from '../wire/rpc-codes.js';
import { invalidParams } from './call-relay.js';
import type { ClientSession, Exchange } from './exchange.js';
import { requestFailure, unknownUri } from './failures.js';
import { LIST_KINDS, type ListKind, type ListWatch } from './list-watch.js';
import { SUBSCRIPTION_ID } from './request-meta.js';
import type { ServerFacts } from './server-facts.js';
import { uniqueMembers } from './unique-members.js';
import type { Upstreams } from './upstreams.js';
import type { Views } from './views.js';

const urisMax = 100;
const uriCharsMax = 8_192;
const streamsMax = 1_000;
const streamsPerPrincipalMax = 100;

export interface SubscriptionParts {
  readonly upstreams: Upstreams;
  readonly views: Views;
  readonly facts: ServerFacts;
  readonly lists: ListWatch;
}

interface SessionEntry {
  readonly session: ClientSession;
  /** URI → what gives it back; undefined while it is being asked for. */
  readonly uris: Map<string, (() => void) | undefined>;
}

export class Subscriptions {
  readonly #parts: SubscriptionParts;
  readonly #sessions = new Map<string, SessionEntry>();
  readonly #streams = new Map<Exchange, Stream>();
  readonly #streamsOf = new Map<string, number>();

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
  }

  opened(session: ClientSession): void {
    if (session.signal.aborted) return;
    const entry: SessionEntry = { session, uris: new Map() };
    this.#sessions.set(session.id, entry);
    const unwatch = this.#parts.lists.watch(session, (kind) => session.notify(LIST_KINDS[kind].told, undefined));
    const end = () => {
      unwatch();
      this.#sessions.delete(session.id);
      for (const release of entry.uris.values()) release?.();
      entry.uris.clear();
    };
    session.signal.addEventListener('abort', end, { once: true });
  }

  subscribe(exchange: Exchange): void {
    const found = this.#sessionAndUri(exchange);
    if (!found) return;
    const { entry, uri } = found;
    const { client } = exchange;
    const server = this.#parts.views.of(client.endpoint, client.principal).serverOfUri(uri);
    if (server === undefined) return exchange.fail(unknownUri(uri, client.era));
    if (entry.uris.has(uri)) return exchange.succeed('{}');
    if (entry.uris.size >= urisMax) return exchange.fail(invalidParams(`more than ${urisMax} subscriptions`));
    entry.uris.set(uri, undefined);
    const updated = (params: Buffer) => entry.session.notify(NOTIFICATION.resourceUpdated, ownParams(params));
    this.#parts.upstreams.subscribe(server, uri, client.principal, updated).then(
      (release) => {
        // Taken back, or the session is over.
        if (!entry.uris.has(uri)) release();
        else entry.uris.set(uri, release);
        exchange.succeed('{}');
      },
      (error) => {
        entry.uris.delete(uri);
        exchange.fail(requestFailure(error, this.#place(exchange, server)));
      },
    );
  }

  unsubscribe(exchange: Exchange): void {
    const found = this.#sessionAndUri(exchange);
    if (!found) return;
    found.entry.uris.get(found.uri)?.();
    found.entry.uris.delete(found.uri);
    exchange.succeed('{}');
  }

  listen(exchange: Exchange): void {
    const wish = readWish(exchange.params);
    if (!wish) return exchange.fail(invalidParams('notifications must be an object of what to listen for'));
    const { id } = exchange.client.principal;
    const own = this.#streamsOf.get(id) ?? 0;
    if (this.#streams.size >= streamsMax || own >= streamsPerPrincipalMax) {
      const { rpc, http } = ERRORS.overloaded;
      return exchange.fail({ code: rpc, message: 'too many streams are open', httpStatus: http });
    }
    if (exchange.signal.aborted) return exchange.fail({ code: ERRORS.cancelled.rpc, message: 'cancelled' });
    this.#streamsOf.set(id, own + 1);
    const stream = new Stream(exchange, this.#parts);
    this.#streams.set(exchange, stream);
    const end = () => {
      stream.end();
      this.#streams.delete(exchange);
      const left = (this.#streamsOf.get(id) ?? 1) - 1;
      if (left > 0) this.#streamsOf.set(id, left);
      else this.#streamsOf.delete(id);
    };
    exchange.signal.addEventListener('abort', end, { once: true });
    stream.open(wish);
  }

  /** Modern streams end with a result; sessions are ended by whoever holds them. */
  close(): void {
    for (const stream of this.#streams.values()) stream.finish();
    this.#streams.clear();
    this.#streamsOf.clear();
    for (const { uris } of this.#sessions.values()) {
      for (const release of uris.values()) release?.();
      uris.clear();
    }
    this.#sessions.clear();
  }

  #sessionAndUri(exchange: Exchange): { entry: SessionEntry; uri: string } | undefined {
    const entry = this.#sessions.get(exchange.client.id);
    const [value] = (exchange.params && uniqueMembers(exchange.params, ['uri'])) ?? [];
    const uri = value && stringOf(value);
    if (uri !== undefined && uri.length <= uriCharsMax && entry) return { entry, uri };
    if (entry) exchange.fail(invalidParams('uri must be a string'));
    else exchange.fail({ code: RPC.invalidRequest, message: 'the session is not open' });
    return undefined;
  }

  #place({ client, method }: Exchange, server: string) {
    const { era, info } = this.#parts.facts.of(server);
    return { method, clientEra: client.era, server, serverEra: era, serverInfo: info };
  }
}

interface Wish {
  readonly kinds: readonly ListKind[];
  readonly uris: readonly string[];
}

const flags = [
  ['toolsListChanged', 'tools'],
  ['promptsListChanged', 'prompts'],
  ['resourcesListChanged', 'resources'],
] as const;

function readWish(params: Buffer | undefined): Wish | undefined {
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
class Stream {
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
          if (kinds.includes(kind)) this.#tell(LIST_KINDS[kind].told, kind, () => `{"_meta":{${this.#id()}}}`);
        }),
      );
    }
    if (uris.length === 0) return this.#acknowledge(kinds, []);
    Promise.all(uris.map((uri) => this.#subscribe(uri))).then(
      (granted) =>
        this.#acknowledge(
          kinds,
          uris.filter((_uri, i) => granted[i]),
        ),
      () => this.#acknowledge(kinds, []),
    );
  }

  /** Whether it was granted. */
  async #subscribe(uri: string): Promise<boolean> {
    const { client } = this.#exchange;
    const server = this.#parts.views.of(client.endpoint, client.principal).serverOfUri(uri);
    if (server === undefined) return false;
    try {
      const release = await this.#parts.upstreams.subscribe(server, uri, client.principal, (params) =>
        this.#tell(NOTIFICATION.resourceUpdated, `uri ${uri}`, () =>
          spliceMeta(params, [[SUBSCRIPTION_ID, this.#exchange.idText]]),
        ),
      );
      if (this.#isOver) release();
      else this.#releases.push(release);
      return true;
    } catch {
      return false;
    }
  }

  #acknowledge(kinds: readonly ListKind[], uris: readonly string[]): void {
    if (this.#isOver) return;
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

/** A modern server marks updates with the stream of our own hop. */
function ownParams(params: Buffer): Buffer {
  if (!params.includes(SUBSCRIPTION_ID)) return params;
  try {
    return spliceMeta(params, [[SUBSCRIPTION_ID, undefined]]);
  } catch {
    return params;
  }
}
