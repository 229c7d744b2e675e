/**
 * The subscriptions of clients: lists and resources of legacy sessions, and the listen streams of modern clients.
 * Not here: detecting changed lists (list-watch.ts), messages of a stream (listen-stream.ts), servers
 * (catalog/subscriptions.ts).
 * Invariants: the end of a session or stream releases its subscriptions, also one that the server grants later. Streams are
 * bounded in total and per principal, subscriptions per session and per stream.
 */
import { ERRORS } from '../../kernel/errors.js';
import { SUBSCRIPTION_ID } from '../../session/eras/modern/protocol.js';
import { spliceMeta } from '../../wire/json-edit.js';
import { stringOf, uniqueMembers } from '../../wire/json-members.js';
import { NOTIFICATION, RPC } from '../../wire/methods.js';
import { type ClientSession, type Exchange, invalidParams } from '../exchange.js';
import { requestFailure } from '../messages/failures.js';
import { noTarget } from '../routing/passthrough-targets.js';
import { isAmbiguous } from '../views/tool-names.js';
import { LIST_KINDS } from './list-watch.js';
import { ListenStream, readFilter, type SubscriptionParts, subscribe, uriCharsMax, urisMax } from './listen-stream.js';

const streamsMax = 1_000;
const streamsPerPrincipalMax = 100;

interface SessionEntry {
  readonly session: ClientSession;
  /** Subscriptions by URI. Undefined until the first one, because most sessions subscribe to nothing. */
  uris: Map<string, Subscription> | undefined;
}

/** A new object for each request: a client may unsubscribe and subscribe again before the server has answered. */
interface Subscription {
  /** Undefined until the server has granted the subscription. */
  release: (() => void) | undefined;
}

export class ClientSubscriptions {
  readonly #parts: SubscriptionParts;
  readonly #sessions = new Map<string, SessionEntry>();
  readonly #streams = new Map<Exchange, ListenStream>();
  readonly #streamsOf = new Map<string, number>();

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
  }

  opened(session: ClientSession): void {
    if (session.signal.aborted) return;
    const entry: SessionEntry = { session, uris: undefined };
    this.#sessions.set(session.id, entry);
    const unwatch = this.#parts.lists.watch(session, (kind) =>
      session.notify(LIST_KINDS[kind].notification, undefined),
    );
    const end = () => {
      unwatch();
      this.#sessions.delete(session.id);
      releaseAll(entry);
    };
    session.signal.addEventListener('abort', end, { once: true });
  }

  subscribe(exchange: Exchange): void {
    const asked = this.#sessionAndUri(exchange);
    if (!asked) return;
    const { entry, uri } = asked;
    const { client } = exchange;
    const found = this.#parts.views.of(client.endpoint, client.principal).findResource(uri);
    if (!found || isAmbiguous(found)) return exchange.fail(noTarget(uri, found, client.era));
    entry.uris ??= new Map();
    const { uris } = entry;
    if (uris.has(uri)) return exchange.succeed('{}');
    if (uris.size >= urisMax)
      return exchange.fail(
        invalidParams(`this session has ${urisMax} subscriptions already: unsubscribe from one first`),
      );
    const subscription: Subscription = { release: undefined };
    uris.set(uri, subscription);
    const notify = (params: Buffer) => entry.session.notify(NOTIFICATION.resourceUpdated, withoutStreamId(params));
    subscribe(this.#parts, () => entry.session, uri, found, notify).then(
      (release) => {
        // The client may have unsubscribed, or the session may have ended, before the server granted the subscription.
        if (uris.get(uri) !== subscription) release();
        else subscription.release = release;
        exchange.succeed('{}');
      },
      (error) => {
        if (uris.get(uri) === subscription) uris.delete(uri);
        exchange.fail(requestFailure(error, this.#failurePlace(exchange, found.server)));
      },
    );
  }

  unsubscribe(exchange: Exchange): void {
    const found = this.#sessionAndUri(exchange);
    if (!found) return;
    found.entry.uris?.get(found.uri)?.release?.();
    found.entry.uris?.delete(found.uri);
    exchange.succeed('{}');
  }

  listen(exchange: Exchange): void {
    const filter = readFilter(exchange.params);
    if (!filter)
      return exchange.fail(invalidParams('notifications must be an object that names each notification once'));
    const { id } = exchange.client.principal;
    const own = this.#streamsOf.get(id) ?? 0;
    if (this.#streams.size >= streamsMax || own >= streamsPerPrincipalMax) {
      const { rpc, http } = ERRORS.overloaded;
      return exchange.fail({
        code: rpc,
        message: 'too many open streams: close one that is no longer needed',
        httpStatus: http,
      });
    }
    if (exchange.signal.aborted) return exchange.fail({ code: ERRORS.cancelled.rpc, message: 'cancelled' });
    this.#streamsOf.set(id, own + 1);
    const stream = new ListenStream(exchange, this.#parts);
    this.#streams.set(exchange, stream);
    const end = () => {
      stream.end();
      this.#streams.delete(exchange);
      const left = (this.#streamsOf.get(id) ?? 1) - 1;
      if (left > 0) this.#streamsOf.set(id, left);
      else this.#streamsOf.delete(id);
    };
    exchange.signal.addEventListener('abort', end, { once: true });
    stream.open(filter);
  }

  /** Ends streams with a result. The ingresses end the sessions. */
  close(): void {
    for (const stream of this.#streams.values()) stream.finish();
    this.#streams.clear();
    this.#streamsOf.clear();
    for (const entry of this.#sessions.values()) releaseAll(entry);
    this.#sessions.clear();
  }

  #sessionAndUri(exchange: Exchange): { entry: SessionEntry; uri: string } | undefined {
    const entry = this.#sessions.get(exchange.client.id);
    const [value] = (exchange.params && uniqueMembers(exchange.params, ['uri'])) ?? [];
    const uri = value && stringOf(value);
    if (uri !== undefined && uri.length <= uriCharsMax && entry) return { entry, uri };
    if (entry) exchange.fail(invalidParams(`uri must be a string of at most ${uriCharsMax} characters`));
    else
      exchange.fail({
        code: RPC.invalidRequest,
        message: 'the session is not open: send notifications/initialized first',
      });
    return undefined;
  }

  #failurePlace({ client, method }: Exchange, server: string) {
    const { era, info } = this.#parts.servers.of(server);
    return { method, clientEra: client.era, server, serverEra: era, serverInfo: info };
  }
}

function releaseAll({ uris }: SessionEntry): void {
  for (const { release } of uris?.values() ?? []) release?.();
  uris?.clear();
}

/** Removes the stream id of the host's own `subscriptions/listen`, which a modern server adds to updates. */
function withoutStreamId(params: Buffer): Buffer {
  if (!params.includes(SUBSCRIPTION_ID)) return params;
  try {
    return spliceMeta(params, [[SUBSCRIPTION_ID, undefined]]);
  } catch {
    return params;
  }
}
