/**
 * An engine that carries messages within one process, as broker/ports.ts says: at least once, in order, with receipts. One host
 * and any number of workers are there at a time; whoever opens again under the same mailbox takes the place of the one before.
 * What goes wrong is asked for by name. Nothing here survives the process, and nothing is written anywhere.
 *
 * Invariants: what a worker got a receipt for is handed to hosts until one acks it; a held reply is handed out until a worker
 * took it; nobody is called from within its own call.
 */

import { joined } from '../../src/broker/messages.js';
import { notOwed } from '../../src/broker/not-owed.js';
import type {
  Delivery,
  HostHandlers,
  HostLink,
  NewRequest,
  OpenHostLink,
  OpenWorkerLink,
  Sender,
  WorkerHandlers,
  WorkerLink,
} from '../../src/broker/ports.js';
import type { CancelSignal } from '../../src/kernel/cancel-signal.js';
import type { Clock } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import type { JsonText } from '../../src/wire/frame.js';
import { End, lost } from './memory-link-end.js';

export interface MemoryBrokerOptions {
  /** Requests a host may owe at a time. */
  readonly window?: number;
  /** After so many handings out, what is released becomes a dead letter. */
  readonly deliveriesMax?: number;
  /** A silent link is noticed and closed after it, as pings do. */
  readonly silenceMsMax?: number;
  /** Has the place for manifests that are read with no host about. */
  readonly keepsManifests?: boolean;
}

interface Held {
  readonly seq: number;
  readonly from: Sender;
  readonly request: NewRequest;
  readonly deadlineAt: Date;
  readonly reasons: string[];
  deliveries: number;
  /** Who had it last. */
  holder: HostHandlers | undefined;
  wasElsewhere: boolean;
  /** Out: in the hands of that host. Resting: released, and not due yet. */
  state: 'waiting' | 'out' | 'resting';
}

interface HeldReply {
  readonly id: string;
  readonly body: Buffer;
  /** It does not reach its worker before that one comes back. */
  isLost: boolean;
  /** The link that it is on its way over. */
  on: End | undefined;
}

interface Refusal {
  readonly error: HostError;
  readonly isHeld: boolean;
}

interface Worker {
  readonly me: Sender;
  readonly handlers: WorkerHandlers;
  readonly end: End;
}

interface HostSide {
  readonly handlers: HostHandlers;
  readonly end: End;
}

export class MemoryBroker {
  readonly #clock: Clock;
  readonly #options: Required<MemoryBrokerOptions>;
  readonly #requests = new Map<string, Held>();
  readonly #replies = new Map<string, HeldReply>();
  readonly #workers = new Map<string, Worker>();
  readonly #manifests = new Map<string | undefined, Buffer>();
  readonly #refusedSends: Refusal[] = [];
  readonly #refusedReplies: HostError[] = [];
  readonly #refusedOpens: HostError[] = [];
  readonly #heldReceipts: (() => void)[] = [];
  #host: HostSide | undefined;
  #seq = 0;
  #repliesToDrop = 0;

  /** Requests that came in, repeated ones and refused ones included, in order. */
  readonly sends: { readonly from: string; readonly request: NewRequest }[] = [];
  readonly cancels: { readonly from: string; readonly id: string }[] = [];
  readonly deadLetters: { readonly from: string; readonly id: string; readonly reasons: readonly string[] }[] = [];
  /** Times that somebody tried to open a link, let in or not. */
  workerOpens = 0;
  hostOpens = 0;
  /** While true, receipts wait for `releaseReceipts`. */
  holdsReceipts = false;
  /** While true, replies wait for `releaseReplies`. */
  holdsReplies = false;
  /** While true, every reply is handed out twice. */
  repeatsReplies = false;
  /** Undefined: it is up. An error: whoever opens is told. Silent: whoever opens hears nothing. */
  outage: HostError | 'silent' | undefined;

  constructor(clock: Clock, options: MemoryBrokerOptions = {}) {
    this.#clock = clock;
    this.#options = { window: 64, deliveriesMax: 10, silenceMsMax: 30_000, keepsManifests: false, ...options };
  }

  /** Requests that are still owed to somebody. */
  get owed(): number {
    return this.#requests.size;
  }

  /** Replies that no worker took yet. */
  get heldReplies(): number {
    return this.#replies.size;
  }

  get connectedWorkers(): readonly string[] {
    return [...this.#workers.keys()];
  }

  readonly openHost: OpenHostLink = async (handlers, signal) => {
    this.hostOpens++;
    await this.#letIn(signal);
    this.cut('host', lost('another host took the place', undefined));
    const side: HostSide = { handlers, end: new End() };
    this.#host = side;
    this.#pump();
    return this.#hostLink(side);
  };

  /** The way in of one credential. */
  openWorker(me: Sender): OpenWorkerLink {
    return async (handlers, signal) => {
      this.workerOpens++;
      await this.#letIn(signal);
      this.cut(me.mailbox, lost('another worker took the place', undefined));
      const worker: Worker = { me, handlers, end: new End() };
      this.#workers.set(me.mailbox, worker);
      for (const [key, reply] of this.#replies) if (key.startsWith(`${me.mailbox}/`)) reply.isLost = false;
      this.#soon(() => this.#host?.handlers.joined?.(me), this.#host?.end);
      this.#handReplies(me.mailbox);
      return this.#workerLink(worker);
    };
  }

  // --- what goes wrong -------------------------------------------------------------------------------------------------

  /** Ends the link of a worker, or of the host. What was owed on it comes again. */
  cut(who: string, error: HostError = lost('the connection was cut', undefined)): void {
    const end = this.#endOf(who);
    if (!end) return;
    if (who === 'host') this.#host = undefined;
    else this.#workers.delete(who);
    end.over(error);
    if (who === 'host') this.#takeBack();
  }

  /** Nothing goes through any more, either way, and nobody is told. It is noticed after `silenceMsMax`. */
  blackHole(who: string): void {
    const end = this.#endOf(who);
    if (!end) return;
    end.isSilent = true;
    this.#clock.at(this.#clock.nowMs() + this.#options.silenceMsMax, () => {
      if (this.#endOf(who) === end) this.cut(who, lost('nothing was heard any more', undefined));
    });
  }

  /** The next request is answered so. With `isHeld` it is there all the same, as after a lost receipt. */
  refuseNextSend(error: HostError, isHeld = false): void {
    this.#refusedSends.push({ error, isHeld });
  }

  refuseNextReply(error: HostError): void {
    this.#refusedReplies.push(error);
  }

  refuseNextOpen(error: HostError): void {
    this.#refusedOpens.push(error);
  }

  /** The next replies are held, but do not reach their worker before it comes back. */
  dropReplies(count = 1): void {
    this.#repliesToDrop += count;
  }

  releaseReceipts(): void {
    this.holdsReceipts = false;
    for (const release of this.#heldReceipts.splice(0)) release();
  }

  releaseReplies(): void {
    this.holdsReplies = false;
    for (const mailbox of this.#workers.keys()) this.#handReplies(mailbox);
  }

  #workerLink(worker: Worker): WorkerLink {
    const { me, end } = worker;
    const link: WorkerLink = {
      me,
      closed: end.closed,
      send: (request) => this.#send(worker, request),
      cancel: (id) => {
        if (end.isOver || end.isSilent) return;
        this.cancels.push({ from: me.mailbox, id });
        this.#soon(() => this.#host?.handlers.cancelled(me, id), this.#host?.end);
      },
      close: async () => {
        if (this.#workers.get(me.mailbox) === worker) this.#workers.delete(me.mailbox);
        end.over(undefined);
      },
    };
    return this.#options.keepsManifests ? { ...link, readManifest: async () => this.#manifests.get(me.role) } : link;
  }

  async #send({ me, end }: Worker, request: NewRequest): Promise<void> {
    if (end.isOver) throw lost('the link is over', 'not_executed');
    this.sends.push({ from: me.mailbox, request });
    if (end.isSilent) return end.until(() => {});
    const refusal = this.#refusedSends.shift();
    if (!refusal || refusal.isHeld) this.#hold(me, request);
    if (refusal) throw refusal.error;
    if (this.holdsReceipts) return end.until((resolve) => void this.#heldReceipts.push(resolve));
  }

  #hold(from: Sender, request: NewRequest): void {
    const key = `${from.mailbox}/${request.id}`;
    if (this.#requests.has(key)) return;
    const deadlineAt = new Date(this.#clock.date().getTime() + request.ttlMs);
    const seq = ++this.#seq;
    this.#requests.set(key, {
      ...{ seq, from, request, deadlineAt, reasons: [], deliveries: 0, state: 'waiting' },
      ...{ holder: undefined, wasElsewhere: false },
    });
    this.#pump();
  }

  #hostLink(side: HostSide): HostLink {
    const { end } = side;
    const tell = (mailbox: string, body: Buffer) => {
      const worker = this.#workers.get(mailbox);
      if (!end.isOver && !end.isSilent && worker) this.#soon(() => worker.handlers.told(body), worker.end);
    };
    const link: HostLink = {
      closed: end.closed,
      tell: (mailbox, ...parts) => tell(mailbox, joined(...parts)),
      tellAll: (...parts) => {
        const body = joined(...parts);
        for (const mailbox of this.#workers.keys()) tell(mailbox, body);
      },
      close: async () => {
        end.over(undefined);
        if (this.#host !== side) return;
        this.#host = undefined;
        this.#takeBack();
      },
    };
    if (!this.#options.keepsManifests) return link;
    return { ...link, keepManifest: async (role, body) => void this.#manifests.set(role, body) };
  }

  #delivery(side: HostSide, key: string, held: Held): Delivery {
    const { end } = side;
    const { from, request, deadlineAt, deliveries, wasElsewhere } = held;
    let isOver = false;
    let isRefused = false;
    const take = (run: () => void) => {
      if (isRefused) return;
      if (isOver) throw new Error('a delivery was acked or released twice');
      isOver = true;
      // Nothing of an older link counts: the request was handed to somebody else meanwhile.
      if (end.isOver || end.isSilent || this.#requests.get(key) !== held) return;
      run();
      this.#pump();
    };
    return {
      id: request.id,
      from,
      body: request.body,
      deliveries,
      wasElsewhere,
      deadlineAt,
      reply: (...parts: readonly JsonText[]) => this.#reply(side, from.mailbox, request.id, joined(...parts)),
      answer: async (...parts: readonly JsonText[]) => {
        await this.#reply(side, from.mailbox, request.id, joined(...parts));
        take(() => void this.#requests.delete(key));
      },
      refuse: async (...parts: readonly JsonText[]) => {
        if (isOver) throw notOwed();
        await this.#reachable(side);
        take(() => void this.#requests.delete(key));
        isRefused = true;
        this.#holdReply(from.mailbox, request.id, joined(...parts));
      },
      ack: () => take(() => void this.#requests.delete(key)),
      release: (delayMs, reason) => take(() => this.#release(key, held, delayMs, reason)),
    };
  }

  async #reply(side: HostSide, mailbox: string, id: string, body: Buffer): Promise<void> {
    await this.#reachable(side);
    this.#holdReply(mailbox, id, body);
  }

  async #reachable({ end }: HostSide): Promise<void> {
    if (end.isOver) throw lost('the link is over', 'not_executed');
    if (end.isSilent) return end.until(() => {});
    const refusal = this.#refusedReplies.shift();
    if (refusal) throw refusal;
  }

  #holdReply(mailbox: string, id: string, body: Buffer): void {
    const isLost = this.#repliesToDrop > 0;
    if (isLost) this.#repliesToDrop--;
    this.#replies.set(`${mailbox}/${id}`, { id, body, isLost, on: undefined });
    this.#handReplies(mailbox);
  }

  #release(key: string, held: Held, delayMs: number, reason: string): void {
    held.reasons.push(reason);
    if (held.deliveries >= this.#options.deliveriesMax) {
      this.#requests.delete(key);
      this.deadLetters.push({ from: held.from.mailbox, id: held.request.id, reasons: held.reasons });
      return;
    }
    held.state = 'resting';
    this.#clock.at(this.#clock.nowMs() + delayMs, () => {
      if (held.state !== 'resting') return;
      held.state = 'waiting';
      this.#pump();
    });
  }

  async #letIn(signal: CancelSignal): Promise<void> {
    if (signal.aborted) throw new HostError('cancelled', 'nobody waits for the link', { execution: 'not_executed' });
    const refusal = this.#refusedOpens.shift() ?? this.outage;
    if (refusal !== 'silent') {
      if (refusal) throw refusal;
      return;
    }
    await new Promise((_, reject) => {
      const gone = () => reject(new HostError('cancelled', 'nobody waits for the link', { execution: 'not_executed' }));
      signal.addEventListener('abort', gone, { once: true });
    });
  }

  #endOf(who: string): End | undefined {
    return who === 'host' ? this.#host?.end : this.#workers.get(who)?.end;
  }

  /** What the host that went owed: it waits again, where it stood before. */
  #takeBack(): void {
    for (const held of this.#requests.values()) if (held.state === 'out') held.state = 'waiting';
    this.#pump();
  }

  #pump(): void {
    const side = this.#host;
    if (!side) return;
    let out = 0;
    for (const held of this.#requests.values()) if (held.state === 'out') out++;
    for (const [key, held] of this.#requests) {
      if (out >= this.#options.window) return;
      if (held.state !== 'waiting') continue;
      held.state = 'out';
      if (held.holder !== undefined && held.holder !== side.handlers) held.wasElsewhere = true;
      held.holder = side.handlers;
      held.deliveries++;
      out++;
      const delivery = this.#delivery(side, key, held);
      this.#soon(() => side.handlers.deliver(delivery), side.end);
    }
  }

  #handReplies(mailbox: string): void {
    const worker = this.#workers.get(mailbox);
    if (!worker || this.holdsReplies) return;
    for (const [key, reply] of this.#replies) {
      if (reply.isLost || reply.on === worker.end || !key.startsWith(`${mailbox}/`)) continue;
      reply.on = worker.end;
      this.#soon(() => {
        if (this.#replies.get(key) !== reply) return;
        worker.handlers.replied(reply.id, reply.body);
        if (this.repeatsReplies) worker.handlers.replied(reply.id, reply.body);
        this.#replies.delete(key);
      }, worker.end);
    }
  }

  /** After whoever called has returned, and only while the link is there. */
  #soon(run: () => void, end: End | undefined): void {
    if (!end) return;
    queueMicrotask(() => {
      if (!end.isOver && !end.isSilent) run();
    });
  }
}
