/** A host and workers that write down what they are handed, so that tests can wait for it. */
import type { Delivery, HostHandlers, HostLink, Sender, WorkerLink } from '../../../src/broker/ports.js';
import { eventually } from '../../eventually.js';
import type { Bench, WorkerName } from './engines.js';

export const never = new AbortController().signal;
const bodyOf = (value: object): Buffer => Buffer.from(JSON.stringify(value));

export class TestHost {
  readonly deliveries: Delivery[] = [];
  readonly cancelled: { from: Sender; id: string }[] = [];
  readonly joined: Sender[] = [];
  link!: HostLink;
  /** What is done with each request besides writing it down. */
  onDeliver: (delivery: Delivery) => void = () => {};

  static async open(bench: Bench, onDeliver?: (delivery: Delivery) => void): Promise<TestHost> {
    const host = new TestHost();
    if (onDeliver) host.onDeliver = onDeliver;
    const handlers: HostHandlers = {
      deliver: (delivery) => {
        host.deliveries.push(delivery);
        host.onDeliver(delivery);
      },
      cancelled: (from, id) => host.cancelled.push({ from, id }),
      joined: (who) => host.joined.push(who),
    };
    host.link = await bench.openHost(handlers, never);
    return host;
  }

  ids(): string[] {
    return this.deliveries.map(({ id }) => id);
  }

  next(count: number): Promise<Delivery> {
    return eventually(`${count} deliveries`, () => this.deliveries[count - 1]);
  }
}

export class TestWorker {
  readonly replies: { id: string; body: string }[] = [];
  readonly told: string[] = [];
  link!: WorkerLink;

  static async open(bench: Bench, name: WorkerName): Promise<TestWorker> {
    const worker = new TestWorker();
    worker.link = await bench.openWorker(name)(
      {
        replied: (id, body) => worker.replies.push({ id, body: body.toString() }),
        told: (body) => worker.told.push(body.toString()),
      },
      never,
    );
    return worker;
  }

  send(id: string, body: object = {}, ttlMs = 60_000): Promise<void> {
    return this.link.send({ id, body: bodyOf(body), ttlMs });
  }

  reply(id: string): Promise<string> {
    return eventually(`the reply to ${id}`, () => this.replies.find((reply) => reply.id === id)?.body);
  }
}

/** Answers with what was asked, then acknowledges. */
export const echo = (delivery: Delivery): void => {
  delivery
    .reply(`{"echo":`, delivery.body, '}')
    .then(() => delivery.ack())
    .catch(() => delivery.ack());
};
