/**
 * One connection to a NATS server: published to with receipts, asked for what JetStream keeps.
 * Not here: how it is opened (nats-connect.ts), what is published and where (nats-names.ts), what the streams are
 * (nats-streams.ts).
 *
 * Invariants: a receipt is the server's own word about that message; every promise of a connection ends with it; whoever fails
 * over a message keeps nobody from hearing the next.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import {
  forbidden,
  gone,
  lossOf,
  nobodyThere,
  noReceipt,
  overPayload,
  tooManyWait,
  unreadableAnswer,
  unsent,
  untaken,
} from './nats-failures.js';

/** What is used of the client's own. */
export interface NatsMessage {
  readonly subject: string;
  readonly reply?: string | undefined;
  readonly data: Uint8Array;
  /** Read when it is asked for, and throws where it cannot be: of what a worker sent, nobody asks for it. */
  readonly headers?: { readonly code: number; readonly description: string; get(name: string): string } | undefined;
}
export interface NatsClient {
  readonly info?:
    | {
        readonly server_id: string;
        readonly max_payload: number;
        readonly version: string;
        readonly jetstream?: boolean;
      }
    | undefined;
  closed(): Promise<unknown>;
  close(): Promise<void>;
  isClosed(): boolean;
  flush(): Promise<void>;
  publish(subject: string, payload?: Uint8Array | string, options?: { reply?: string }): void;
  subscribe(
    subject: string,
    options: { callback(error: Error | null, message: NatsMessage): void },
  ): { drain(): Promise<void> };
  status(): AsyncIterable<{ readonly type: string; readonly error?: unknown }>;
}

/** The server's word: `seq` of what it keeps now, or why it keeps nothing. */
export type Receipt =
  | { readonly kind: 'kept'; readonly seq: number }
  /** There is one under this subject already. */
  | { readonly kind: 'there' }
  | { readonly kind: 'full'; readonly why: string };

/** A receipt that takes longer is not waited for: what it was for may be kept or not. */
const receiptMs = 10_000;
/** What is not urgent waits so long for company. */
const soonMs = 5;
/** What may wait for a receipt at a time: a server that reads slowly must not fill our memory. */
const waitingMax = 65_536;
const waitingBytesMax = 64 * 1024 * 1024;

interface Waiter {
  readonly untilMs: number;
  readonly bytes: number;
  readonly subject: string;
  readonly resolve: (message: NatsMessage) => void;
  readonly reject: (error: HostError) => void;
}

export class NatsConnection {
  /** Resolves when it is over: with why, or undefined when it was closed from here. */
  readonly closed: Promise<HostError | undefined>;
  readonly maxPayload: number;
  readonly version: string;
  readonly serverId: string;
  /** Whether the server keeps anything at all. */
  readonly hasJetStream: boolean;
  readonly #client: NatsClient;
  readonly #clock: Clock;
  readonly #inbox: string;
  readonly #onProblem: (error: HostError) => void;
  /** By the number of its reply subject; in the order they were sent, which is that of their ends. */
  readonly #waiting = new Map<number, Waiter>();
  #waitingBytes = 0;
  /** What is said in this turn of the loop; bounded by what waits for receipts and what is handed out. */
  #unsaid: { subject: string; body: Uint8Array | string | undefined; reply: string | undefined }[] = [];
  #willSay = false;
  #stopSoon: Cancel | undefined;
  #nextNumber = 1;
  #stopTimer: Cancel | undefined;
  #isClosing = false;
  #lost: HostError | undefined;
  #denial: HostError | undefined;
  #refused: unknown;

  constructor(client: NatsClient, clock: Clock, inbox: string, onProblem: (error: HostError) => void = () => {}) {
    this.#client = client;
    this.#clock = clock;
    this.#inbox = inbox;
    this.#onProblem = onProblem;
    this.maxPayload = client.info?.max_payload ?? 0;
    this.version = client.info?.version ?? '0.0.0';
    this.serverId = client.info?.server_id ?? '';
    this.hasJetStream = client.info?.jetstream === true;
    client.subscribe(`${inbox}.a.*`, { callback: (_error, message) => this.#answered(message) });
    this.closed = client.closed().then((why) => this.#ended(why));
    void this.#watch();
  }

  /** A subject below our own inbox that nobody had before. */
  newInbox(): string {
    return `${this.#inbox}.n${this.#nextNumber++}`;
  }

  /** Returns its end: nothing new is sent for it, and what is on its way is still heard. */
  subscribe(subject: string, heard: (message: NatsMessage) => void): Cancel {
    const callback = (error: Error | null, message: NatsMessage) => {
      if (error !== null) return this.#deaf(error);
      try {
        heard(message);
      } catch (cause) {
        this.#failed(cause);
      }
    };
    const subscription = this.#client.subscribe(subject, { callback });
    return () => void subscription.drain().catch(() => {});
  }

  /** Not kept, not answered. After the end of the connection it says nothing: nobody waits for it. */
  tell(subject: string, body?: Uint8Array | string, reply?: string): void {
    if (this.#lost !== undefined || this.#isClosing) return;
    // What is too large to be told is not told.
    if (body === undefined || body.length <= this.maxPayload) this.#say(subject, body, reply);
  }

  /** The same for what nobody waits for, such as an acknowledgement: it goes along with what is said next, or a little later. */
  tellSoon(subject: string, body: string, reply?: string): void {
    if (this.#lost !== undefined || this.#isClosing) return;
    this.#unsaid.push({ subject, body, reply });
    this.#stopSoon ??= this.#clock.at(this.#clock.nowMs() + soonMs, () => this.#sayAll());
  }

  /** Said at the end of this turn of the loop: what many have to say goes out in one write, which is what costs most. */
  #say(subject: string, body: Uint8Array | string | undefined, reply: string | undefined): void {
    this.#unsaid.push({ subject, body, reply });
    if (this.#willSay) return;
    this.#willSay = true;
    setImmediate(() => {
      if (this.#willSay) this.#sayAll();
    });
  }

  /** Whoever was at the end of the turn itself need not wait for the next one. */
  sayNow(): void {
    this.#sayAll();
  }

  #sayAll(): void {
    const unsaid = this.#unsaid;
    this.#unsaid = [];
    this.#willSay = false;
    this.#stopSoon?.();
    this.#stopSoon = undefined;
    try {
      for (const { subject, body, reply } of unsaid)
        this.#client.publish(subject, body, reply === undefined ? undefined : { reply });
    } catch {
      // It closed in this very moment: whoever waits for a receipt hears that with the end of the connection.
    }
  }

  /** Keeps a message in the stream that its subject belongs to. */
  async keep(subject: string, body: Uint8Array | string): Promise<Receipt> {
    return receiptOf(await this.ask(subject, body), subject);
  }

  /** One request, one answer. */
  ask(subject: string, body: Uint8Array | string = '', withinMs = receiptMs): Promise<NatsMessage> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== undefined || this.#isClosing) return reject(this.#lost ?? gone());
      const bytes = body.length;
      if (this.#waiting.size >= waitingMax || (this.#waitingBytes + bytes > waitingBytesMax && this.#waiting.size > 0))
        return reject(tooManyWait(this.#waiting.size));
      if (bytes > this.maxPayload) return reject(overPayload(bytes, this.maxPayload));
      const number = this.#nextNumber++;
      this.#say(subject, body, `${this.#inbox}.a.${number}`);
      this.#waitingBytes += bytes;
      this.#waiting.set(number, { untilMs: this.#clock.nowMs() + withinMs, bytes, subject, resolve, reject });
      if (withinMs !== receiptMs) this.#clock.at(this.#clock.nowMs() + withinMs, () => this.#expire(number));
      else this.#stopTimer ??= this.#clock.at(this.#clock.nowMs() + withinMs, () => this.#expireOld());
    });
  }

  /** Of JetStream's interface. Throws what the server says is wrong as a HostError with its code as `actual`. */
  async api<T>(subject: string, body?: object): Promise<T> {
    const { data } = await this.ask(`$JS.API.${subject}`, body && JSON.stringify(body));
    return JSON.parse(Buffer.from(data).toString()) as T;
  }

  /** The newest message of a subject, read past the stream's own queue. */
  async read(
    stream: string,
    subject: string,
    withinMs?: number,
  ): Promise<{ readonly seq: number; readonly body: Buffer } | undefined> {
    const { headers, data } = await this.ask(`$JS.API.DIRECT.GET.${stream}.${subject}`, '', withinMs);
    if (headers?.code === 404) return undefined;
    if (headers === undefined || headers.code >= 300)
      throw new HostError('transport', `stream '${stream}' cannot be read: ${headers?.description || 'no header'}`, {
        hint: 'look at the log of the NATS server',
      });
    return { seq: Number(headers.get('Nats-Sequence')), body: bufferOf(data) };
  }

  /** True for whoever removed it: there is one for each message. */
  async remove(stream: string, seq: number): Promise<boolean> {
    const said = await this.api<{ success?: boolean }>(`STREAM.MSG.DELETE.${stream}`, { seq, no_erase: true });
    return said.success === true;
  }

  /** Resolves when the server has seen everything said so far. Rejects with why it did not. */
  async flush(): Promise<void> {
    this.#sayAll();
    // The client leaves a flush unanswered when it is closed meanwhile.
    await Promise.race([this.#client.flush().catch(() => {}), this.closed]);
    if (this.#denial === undefined && !this.#client.isClosed()) return;
    throw (await this.closed) ?? gone();
  }

  /** It is being closed from here, or is. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#sayAll();
    await Promise.race([this.#client.flush().catch(() => {}), this.closed]);
    await this.#client.close().catch(() => {});
    await this.closed;
  }

  /** What must be heard may not be: whoever uses this must not wait for it. */
  #deaf(cause: Error): void {
    if (this.#isClosing || this.#denial !== undefined) return;
    this.#denial = new HostError('denied', 'the NATS server does not let this key hear what it must', {
      ...unsent,
      hint: "look at the mailbox of the key in the server's configuration",
      cause,
    });
    void this.#client.close().catch(() => {});
  }

  /** Past here it would end the client's reading, of every subject. */
  #failed(cause: unknown): void {
    try {
      this.#onProblem(untaken(cause));
    } catch {
      // Whoever watches must not disturb those who are served.
    }
  }

  #answered(message: NatsMessage): void {
    const waiter = this.#take(Number(message.subject.slice(message.subject.lastIndexOf('.') + 1)));
    if (waiter === undefined) return;
    try {
      if (message.headers?.code === 503 && message.data.length === 0) waiter.reject(nobodyThere(waiter.subject));
      else waiter.resolve(message);
    } catch (cause) {
      waiter.reject(unreadableAnswer(waiter.subject, cause));
    }
  }

  #take(number: number): Waiter | undefined {
    const waiter = this.#waiting.get(number);
    if (waiter === undefined) return undefined;
    this.#waiting.delete(number);
    this.#waitingBytes -= waiter.bytes;
    return waiter;
  }

  #expire(number: number): void {
    this.#take(number)?.reject(noReceipt());
  }

  #expireOld(): void {
    this.#stopTimer = undefined;
    const nowMs = this.#clock.nowMs();
    for (const [number, { untilMs }] of this.#waiting) {
      if (untilMs > nowMs) {
        this.#stopTimer = this.#clock.at(untilMs, () => this.#expireOld());
        return;
      }
      this.#expire(number);
    }
  }

  #ended(why: unknown): HostError | undefined {
    this.#lost = this.#isClosing ? gone() : (this.#denial ?? lossOf(why, this.#refused));
    this.#stopTimer?.();
    this.#stopSoon?.();
    // What was said and not answered may have arrived, also where it is we who close, or the key that is not good any more.
    const unanswered = this.#isClosing ? lossOf(undefined, undefined) : this.#lost.with({ execution: 'uncertain' });
    for (const { reject } of this.#waiting.values()) reject(unanswered);
    this.#waiting.clear();
    return this.#isClosing ? undefined : this.#lost;
  }

  /** What the server says aside: that a key is no longer good, or that a subject is not ours. */
  async #watch(): Promise<void> {
    for await (const { type, error } of this.#client.status()) {
      if (type !== 'error') continue;
      const { operation, subject } = error as { operation?: string; subject?: string };
      if (operation === undefined) this.#refused = error;
      else if (operation === 'publish')
        for (const [number, waiter] of this.#waiting)
          if (waiter.subject === subject) this.#take(number)?.reject(forbidden());
    }
  }
}

interface PubAck {
  readonly seq?: number;
  readonly error?: { readonly code: number; readonly err_code: number; readonly description: string };
}

function receiptOf({ data }: NatsMessage, subject: string): Receipt {
  let said: PubAck;
  try {
    said = JSON.parse(bufferOf(data).toString('latin1')) as PubAck;
  } catch {
    throw new HostError('protocol_error', `what answered to '${subject.slice(0, 200)}' is no stream`, {
      execution: 'uncertain',
    });
  }
  const { error, seq } = said;
  if (error === undefined && typeof seq === 'number') return { kind: 'kept', seq };
  if (error?.description.includes('per subject')) return { kind: 'there' };
  if (error?.err_code === 10077 || error?.err_code === 10047 || error?.err_code === 10023)
    return { kind: 'full', why: error.description };
  throw new HostError('transport', `the NATS server refused a message: ${error?.description ?? 'no reason'}`, unsent);
}

export const bufferOf = (data: Uint8Array): Buffer => Buffer.from(data.buffer, data.byteOffset, data.byteLength);
