/**
 * Clients that want to hear of changes: legacy sessions of their lists and of resources they subscribe to, modern ones of what
 * they listen for. Both over the subscriptions that the host holds at the servers.
 * Not here: noticing that a list changed (list-watch.ts), what is said on a modern stream (listen-stream.ts).
 *
 * Invariants: what is subscribed to is given back when its session or stream ends, also when it came too late to be used;
 * streams and subscriptions are bounded, all together and for each principal.
 */
import { ERRORS } from '../../kernel/errors.js';
import { spliceMeta } from '../../wire/json-edit.js';
import { stringOf, uniqueMembers } from '../../wire/json-members.js';
import { NOTIFICATION, RPC } from '../../wire/rpc-codes.js';
import type { ClientSession, Exchange } from '../exchange.js';
import { requestFailure } from '../messages/failures.js';
import { SUBSCRIPTION_ID } from '../messages/request-meta.js';
import { invalidParams } from '../routing/call-relay.js';
import { noTarget } from '../routing/passthrough.js';
import { isAmbiguous, wrapParams } from '../views/shared-uris.js';
import { LIST_KINDS } from './list-watch.js';
import { ListenStream, readWish, type SubscriptionParts, uriCharsMax, urisMax } from './listen-stream.js';

const streamsMax = 1_000;
const streamsPerPrincipalMax = 100;

interface SessionEntry {
  readonly session: ClientSession;
  /** By URI. Undefined until the first, because most sessions subscribe to nothing. */
  uris: Map<string, Held> | undefined;
}

/** One subscription of a session. Its own object: the same URI may be taken back and asked for again while it is on its way. */
interface Held {
  /** Undefined while it is being asked for. */
  release: (() => void) | undefined;
}

export class Subscriptions {
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
    const { server } = found;
    entry.uris ??= new Map();
    const { uris } = entry;
    if (uris.has(uri)) return exchange.succeed('{}');
    if (uris.size >= urisMax) return exchange.fail(invalidParams(`more than ${urisMax} subscriptions`));
    const held: Held = { release: undefined };
    uris.set(uri, held);
    const updated = (params: Buffer) => {
      // By the role it has now.
      if (!this.#parts.upstreams.isAllowed(entry.session.principal, server, undefined)) return;
      const own = ownParams(params);
      entry.session.notify(NOTIFICATION.resourceUpdated, found.uri === uri ? own : wrapParams(own, server));
    };
    this.#parts.upstreams.subscribe(server, found.uri, client.principal, updated, client.id).then(
      (release) => {
        // Taken back, or the session is over.
        if (uris.get(uri) !== held) release();
        else held.release = release;
        exchange.succeed('{}');
      },
      (error) => {
        if (uris.get(uri) === held) uris.delete(uri);
        exchange.fail(requestFailure(error, this.#place(exchange, server)));
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
    stream.open(wish);
  }

  /** Modern streams end with a result; sessions are ended by whoever holds them. */
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
    if (entry) exchange.fail(invalidParams('uri must be a string'));
    else exchange.fail({ code: RPC.invalidRequest, message: 'the session is not open' });
    return undefined;
  }

  #place({ client, method }: Exchange, server: string) {
    const { era, info } = this.#parts.facts.of(server);
    return { method, clientEra: client.era, server, serverEra: era, serverInfo: info };
  }
}

function releaseAll({ uris }: SessionEntry): void {
  for (const { release } of uris?.values() ?? []) release?.();
  uris?.clear();
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
