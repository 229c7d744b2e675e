/**
 * A worker's end on NATS: its requests go into the stream of its mailbox, its replies come out of theirs.
 * Not here: coming back after a loss and sending again (worker/).
 *
 * Invariants: a request is held when the server has given its receipt, or has one under that id already; a reply is
 * acknowledged after whoever waits has it; of two connections with one mailbox the newer has it.
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
import { bufferOf, connectNats, type NatsConnection, type NatsMessage } from './nats-connection.js';
import { requestHead } from './nats-delivery.js';
import { checkId, type MailboxNames, type Names, namesOf } from './nats-names.js';

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

export function openNatsWorkerLink(options: NatsWorkerOptions): OpenWorkerLink {
  const all = namesOf(options.prefix);
  const names = all.of(options.mailbox);
  const { url, key, insecure, clock = systemClock } = options;
  const name = `hostler worker ${options.mailbox}`;
  return async (handlers, signal) => {
    const connection = await connectNats({ url, key, insecure, clock, name }, signal);
    const link = new NatsWorkerLink(connection, handlers, all, names);
    await connection.flush();
    link.announce();
    return link;
  };
}

class NatsWorkerLink implements WorkerLink {
  readonly me;
  readonly closed: Promise<HostError | undefined>;
  readonly #connection: NatsConnection;
  readonly #names: MailboxNames;
  readonly #allNames: Names;
  readonly #nonce = randomBytes(16).toString('hex');
  #replaced: HostError | undefined;

  constructor(connection: NatsConnection, handlers: WorkerHandlers, allNames: Names, names: MailboxNames) {
    this.#connection = connection;
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

  async send({ id, body, ttlMs }: NewRequest): Promise<void> {
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
    const { records, mail } = this.#names;
    const rest = subject.slice(records.length);
    const id = subject.startsWith(mail) ? rest.slice(0, rest.indexOf('.')) : rest;
    if (idPattern.test(id)) handlers.replied(id, bufferOf(data));
    if (reply) this.#connection.tell(reply, '+ACK');
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
