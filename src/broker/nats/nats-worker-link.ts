/**
 * A worker's end on NATS: its requests go into the stream of its mailbox, those of one turn of the loop as one message; its
 * replies come out of theirs.
 * Not here: coming back after a loss and sending again (worker/), which requests went together (nats-request-bundles.ts).
 *
 * Invariants: a request is held when the server has given its receipt, or has one under that id already; one that went in a
 * bundle goes in no other, and never alone; a reply is acknowledged after whoever waits has it; of two connections with one
 * mailbox the newer has it.
 */
import { randomBytes } from 'node:crypto';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import {
  idPattern,
  messageBytesMax,
  type NewRequest,
  type OpenWorkerLink,
  type WorkerHandlers,
  type WorkerLink,
} from '../ports.js';
import { readResults, writeRequests } from './nats-bundle.js';
import { connectNats } from './nats-connect.js';
import { bufferOf, type NatsConnection, type NatsMessage } from './nats-connection.js';
import { requestHead } from './nats-delivery.js';
import { checkId, type MailboxNames, type Names, namesOf } from './nats-names.js';
import { parted, RequestBundles, type SentBundle } from './nats-request-bundles.js';

/** Whoever gets no manifest in this time asks a host for it. */
const manifestMs = 2_000;

export interface NatsWorkerOptions {
  readonly url: string;
  readonly key?: string | undefined;
  /** Without TLS also to another machine. */
  readonly insecure?: boolean | undefined;
  /** The one its key is for: the server lets it use no other. */
  readonly mailbox: string;
  readonly clock?: Clock;
  readonly prefix?: string;
}

/** Made once for a worker, and called for each of its connections: which requests went together is remembered here. */
export function openNatsWorkerLink(options: NatsWorkerOptions): OpenWorkerLink {
  const all = namesOf(options.prefix);
  const names = all.of(options.mailbox);
  const { url, key, insecure, clock = systemClock } = options;
  const name = `hostler worker ${options.mailbox}`;
  const bundles = new RequestBundles(clock);
  return async (handlers, signal) => {
    const connection = await connectNats({ url, key, insecure, clock, name }, signal);
    const link = new NatsWorkerLink(connection, handlers, all, names, bundles);
    await connection.flush();
    link.announce();
    return link;
  };
}

interface Sending {
  readonly request: NewRequest;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

class NatsWorkerLink implements WorkerLink {
  readonly me;
  readonly closed: Promise<HostError | undefined>;
  readonly #connection: NatsConnection;
  readonly #names: MailboxNames;
  readonly #allNames: Names;
  readonly #bundles: RequestBundles;
  /** Sent in this turn of the loop; bounded by what a worker has under way. */
  #turn: Sending[] = [];
  /** Bundles whose receipt is waited for. */
  readonly #underWay = new Map<SentBundle, Promise<void>>();
  readonly #nonce = randomBytes(16).toString('hex');
  #replaced: HostError | undefined;

  constructor(
    connection: NatsConnection,
    handlers: WorkerHandlers,
    allNames: Names,
    names: MailboxNames,
    bundles: RequestBundles,
  ) {
    this.#connection = connection;
    this.#bundles = bundles;
    this.#names = names;
    this.#allNames = allNames;
    this.me = { mailbox: names.mailbox, role: undefined };
    this.closed = connection.closed.then((why) => this.#replaced ?? why);
    connection.subscribe(names.outbox, (message) => this.#replied(message, handlers));
    connection.subscribe(names.tell, ({ data }) => handlers.told(bufferOf(data)));
    connection.subscribe(allNames.tellAll, ({ data }) => handlers.told(bufferOf(data)));
    connection.subscribe(names.takeover, ({ data }) => this.#taken(bufferOf(data).toString('latin1')));
  }

  announce(): void {
    this.#connection.tell(this.#names.takeover, this.#nonce);
    this.#connection.tell(this.#names.joined);
  }

  send(request: NewRequest): Promise<void> {
    const bundle = this.#bundles.of(request.id);
    if (bundle !== undefined) return this.#sendBundle(bundle, false);
    if (!this.#bundles.takes(request) || !idPattern.test(request.id)) return this.#sendAlone(request);
    return new Promise((resolve, reject) => {
      if (this.#turn.push({ request, resolve, reject }) === 1) setImmediate(() => this.#sendTurn());
    });
  }

  #sendTurn(): void {
    const turn = this.#turn;
    this.#turn = [];
    for (const part of parted(turn)) {
      const bundle = this.#bundles.add(part.map(({ request }) => request));
      const [first] = part as [Sending];
      const sending = bundle === undefined ? this.#sendAlone(first.request) : this.#sendBundle(bundle, true);
      sending.then(
        () => {
          for (const { resolve } of part) resolve();
        },
        (error) => {
          for (const { reject } of part) reject(error);
        },
      );
    }
    this.#connection.sayNow();
  }

  /** All that is left of it, whoever of them is sent again: what is held under its name is held for all of them. */
  #sendBundle(bundle: SentBundle, isFirst: boolean): Promise<void> {
    const underWay = this.#underWay.get(bundle);
    if (underWay !== undefined) return underWay;
    const requests = this.#bundles.toSend(bundle, isFirst);
    if (requests.length === 0) return Promise.resolve();
    const sending = this.#keep(bundle.id, writeRequests(requests)).then(
      () => void this.#underWay.delete(bundle),
      (error) => {
        this.#underWay.delete(bundle);
        if (isFirst && isHostError(error) && error.details.execution === 'not_executed') this.#bundles.forget(bundle);
        throw error;
      },
    );
    this.#underWay.set(bundle, sending);
    return sending;
  }

  async #sendAlone({ id, body, ttlMs }: NewRequest): Promise<void> {
    checkId(id);
    if (body.length > messageBytesMax)
      throw new HostError('invalid_request', `the request is larger than ${messageBytesMax} bytes`, {
        limit: messageBytesMax,
        actual: body.length,
        execution: 'not_executed',
        hint: 'send less at a time',
      });
    const head = requestHead(ttlMs);
    const payload = Buffer.allocUnsafe(head.length + body.length);
    payload.write(head, 0, 'latin1');
    payload.set(body, head.length);
    return this.#keep(id, payload);
  }

  async #keep(id: string, payload: Buffer): Promise<void> {
    const receipt = await this.#connection.keep(this.#names.requests + id, payload);
    // Held already: the same request.
    if (receipt.kind !== 'full') return;
    throw new HostError('overloaded', `mailbox '${this.#names.mailbox}' is full: ${receipt.why}`, {
      reason: 'mailbox_full',
      execution: 'not_executed',
      hint: 'wait until requests that are under way are answered',
    });
  }

  cancel(id: string): void {
    this.#bundles.over(id);
    if (idPattern.test(id)) this.#connection.tell(this.#names.cancels + id);
  }

  async readManifest(): Promise<Buffer | undefined> {
    try {
      const { manifestStream } = this.#allNames;
      return (await this.#connection.read(manifestStream, this.#names.manifest, manifestMs))?.body;
    } catch (error) {
      // No host was ever there: of a stream that is not there the server says nothing.
      if (isHostError(error) && (error.code === 'timeout' || error.details.reason === 'no_stream')) return undefined;
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  #replied(message: NatsMessage, handlers: WorkerHandlers): void {
    const { subject, reply, data } = message;
    const { records, mail, bundleRecords } = this.#names;
    if (subject.startsWith(bundleRecords)) {
      for (const { id, body } of readResults(bufferOf(data)) ?? []) {
        this.#bundles.over(id);
        handlers.replied(id, body);
      }
    } else {
      const rest = subject.slice(records.length);
      const id = subject.startsWith(mail) ? rest.slice(0, rest.indexOf('.')) : rest;
      this.#bundles.over(id);
      if (idPattern.test(id)) handlers.replied(id, bufferOf(data));
    }
    if (reply) this.#connection.tellSoon(reply, '+ACK');
  }

  #taken(nonce: string): void {
    if (nonce === this.#nonce || this.#replaced !== undefined) return;
    this.#replaced = new HostError('transport', `mailbox '${this.#names.mailbox}' is used by a newer connection`, {
      reason: 'replaced',
      execution: 'uncertain',
      hint: 'give each worker a mailbox and a key of its own',
    });
    void this.#connection.close();
  }
}
