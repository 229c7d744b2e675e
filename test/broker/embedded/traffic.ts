/** Workers and a host that use a broker without pause, come back when they lose it, and write down all that happens to them. */
import type { Delivery, OpenHostLink, OpenWorkerLink, WorkerLink } from '../../../src/broker/ports.js';
import { Cancellation } from '../../../src/kernel/cancel-signal.js';
import { isHostError } from '../../../src/kernel/errors.js';
import { type Random, randomInt } from '../../../src/kernel/random.js';
import { eventually } from '../../eventually.js';
import type { Happened } from './history.js';

const nap = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** How many messages a worker has under way: what a broker holds when it dies must be finished within a few lives. */
const ahead = 4;

export interface TrafficOptions {
  readonly workers: readonly string[];
  worker(name: string): OpenWorkerLink;
  host(): OpenHostLink;
  readonly random: Random;
}

export class Traffic {
  readonly history: Happened[] = [];
  readonly #options: TrafficOptions;
  readonly #stopped = new Cancellation();
  #isSending = true;
  #links = 0;
  #taken = 0;
  #opened = 0;
  #running: Promise<unknown>[] = [];
  /** By worker and number: what still has no answer. */
  readonly #open = new Set<string>();

  constructor(options: TrafficOptions) {
    this.#options = options;
  }

  get taken(): number {
    return this.#taken;
  }
  /** How often somebody was let in. */
  get opened(): number {
    return this.#opened;
  }

  start(): void {
    this.#running = [this.#serve(), ...this.#options.workers.map((name) => this.#work(name))];
  }

  /** Nothing new is sent; resolves when everything that was has its answer. */
  async finish(): Promise<void> {
    this.#isSending = false;
    await eventually('every answer', () => this.#open.size === 0, 120_000);
    this.#stopped.abort();
    await Promise.all(this.#running);
  }

  /** Whatever still has no answer. */
  abandon(): void {
    this.#isSending = false;
    this.#open.clear();
    this.#stopped.abort();
  }

  async #connected<T>(open: () => Promise<T>): Promise<T | undefined> {
    while (!this.#stopped.aborted) {
      try {
        const link = await open();
        this.#opened++;
        return link;
      } catch {
        await nap(10);
      }
    }
    return undefined;
  }

  async #serve(): Promise<void> {
    while (!this.#stopped.aborted) {
      const number = ++this.#links;
      const handlers = { deliver: (delivery: Delivery) => this.#handle(delivery, number), cancelled() {} };
      const link = await this.#connected(() => this.#options.host()(handlers, this.#stopped));
      if (!link) return;
      const stop = () => void link.close();
      this.#stopped.addEventListener('abort', stop);
      await link.closed;
      this.history.push({ kind: 'link_over', link: number });
    }
  }

  #handle(delivery: Delivery, link: number): void {
    const { n } = JSON.parse(delivery.body.toString()) as { n: number };
    const who = delivery.from.mailbox;
    this.history.push({ kind: 'handed', who, n, link, seq: 0 });
    // Now and then it is given back, or the answer takes its time.
    if (delivery.deliveries === 1 && this.#options.random() < 0.002) {
      this.history.push({ kind: 'released', who, n, link });
      return delivery.release(0, 'not now');
    }
    const answer = async () => {
      if (this.#options.random() < 0.1) await nap(randomInt(this.#options.random, 1, 20));
      await delivery.reply(`{"n":${n}}`);
      this.history.push({ kind: 'answered', who, n });
      this.history.push({ kind: 'acked', who, n, link });
      delivery.ack();
    };
    // Without a receipt for the reply it is not acknowledged, and comes again.
    answer().catch(() => undefined);
  }

  async #work(who: string): Promise<void> {
    let link: WorkerLink | undefined;
    const handlers = {
      replied: (_: string, body: Buffer) => {
        const { n } = JSON.parse(body.toString()) as { n: number };
        this.history.push({ kind: 'taken', who, n });
        if (this.#open.delete(`${who} ${n}`)) this.#taken++;
      },
      told() {},
    };
    const connect = async () => {
      link = await this.#connected(() => this.#options.worker(who)(handlers, this.#stopped));
      if (!link) return;
      const mine = link;
      void link.closed.then(() => {
        if (link === mine && !this.#stopped.aborted) return connect();
        return undefined;
      });
    };
    await connect();
    for (let n = 0; this.#isSending; n++) {
      this.#open.add(`${who} ${n}`);
      await this.#send(who, n, () => link);
      await eventually('some answers', () => this.#openOf(who) < ahead, 120_000);
    }
    this.#stopped.addEventListener('abort', () => void link?.close());
    await eventually('the end', () => this.#stopped.aborted, 120_000);
    await link?.close();
  }

  #openOf(who: string): number {
    let count = 0;
    for (const key of this.#open) if (key.startsWith(`${who} `)) count++;
    return count;
  }

  /** The same message until there is a receipt. */
  async #send(who: string, n: number, link: () => WorkerLink | undefined): Promise<void> {
    const body = Buffer.from(JSON.stringify({ n, pad: 'x'.repeat(randomInt(this.#options.random, 0, 400)) }));
    for (;;) {
      try {
        const now = link();
        if (!now) throw new Error('not connected');
        this.history.push({ kind: 'sent', who, n });
        await now.send({ id: `m${n}`, body, ttlMs: 3_600_000 });
        this.history.push({ kind: 'receipt', who, n });
        return;
      } catch (error) {
        if (isHostError(error) && error.code !== 'transport' && error.code !== 'timeout') throw error;
        await nap(5);
      }
    }
  }
}
