/** A service over a broker and a journal in memory, and workers that only send and write down. */

import {
  type CallRequest,
  callRequest,
  manifestRequest,
  type News,
  type Reply,
  readNews,
  readReply,
} from '../../src/broker/messages.js';
import type { WorkerLink } from '../../src/broker/ports.js';
import { BrokerService, type BrokerServiceOptions } from '../../src/broker/service/broker-service.js';
import type { ServiceEvent } from '../../src/broker/service/service-events.js';
import { Cancellation } from '../../src/kernel/cancel-signal.js';
import type { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { type FakeCall, FakeUpstreams } from './fake-upstreams.js';
import { MemoryBroker } from './memory-broker.js';
import { MemoryJournal } from './memory-journal.js';

export const never = new Cancellation();

/** A worker that only sends and writes down: what the executor does with it is tested with the executor. */
export class RigWorker {
  readonly replies: { id: string; reply: Reply }[] = [];
  readonly news: News[] = [];
  link: WorkerLink | undefined;
  #next = 0;

  async open(broker: MemoryBroker, mailbox: string, role: string | undefined): Promise<this> {
    this.link = await broker.openWorker({ mailbox, role })(
      {
        replied: (id, body) => this.replies.push({ id, reply: readReply(body) }),
        told: (body) => {
          const news = readNews(body);
          if (news) this.news.push(news);
        },
      },
      never,
    );
    return this;
  }

  async call(tool: string, args: unknown = {}, more: Partial<CallRequest> = {}): Promise<string> {
    const callKey = more.callKey ?? `k${this.#next++}`;
    const deadlineMs = more.deadlineMs ?? 10_000;
    const request = {
      server: undefined,
      manifestRevision: undefined,
      trace: undefined,
      wantsProgress: false,
      isCallersKey: false,
      ...more,
    };
    const body = callRequest({ ...request, callKey, deadlineMs, tool, args: JSON.stringify(args) });
    await this.link?.send({ id: callKey, body, ttlMs: deadlineMs });
    return callKey;
  }

  replyTo(id: string): Reply | undefined {
    return this.replies.find((each) => each.id === id)?.reply;
  }

  errorOf(id: string): HostError {
    const reply = this.replyTo(id);
    if (reply?.kind !== 'error') throw new Error(`the reply to ${id} is ${reply?.kind}`);
    return reply.error;
  }

  async tools(): Promise<string[]> {
    const id = `m${this.#next++}`;
    await this.link?.send({ id, body: manifestRequest(), ttlMs: 10_000 });
    await settled();
    const reply = this.replyTo(id);
    if (reply?.kind !== 'manifest') throw new Error(`the reply is ${reply?.kind}`);
    return reply.manifest.tools.map(({ name }) => name);
  }
}

export const settled = async () => {
  for (let i = 0; i < 50; i++) await Promise.resolve();
};

export async function serviceRig(options: Partial<BrokerServiceOptions> = {}) {
  const clock = new FakeClock();
  const broker = new MemoryBroker(clock, { window: 10_000 });
  const journal = new MemoryJournal();
  const host = new FakeUpstreams({ nova: { tools: ['fetch_url', 'nova_click', 'nova_screenshot'] } });
  host.allow(({ role }, _, tool) => {
    if (role === 'researcher') return tool === undefined || tool === 'fetch_url';
    return role !== 'sandbox';
  });
  const events: ServiceEvent[] = [];
  const service = new BrokerService({
    ...{ host, journal, clock, onEvent: (event) => events.push(event) },
    isRolelessAllowed: () => true,
    ...options,
  });
  const connect = async () => service.attach(await broker.openHost(service, never));
  await connect();
  const worker = async (mailbox: string, role: string | null = 'operator') => {
    const opened = await new RigWorker().open(broker, mailbox, role ?? undefined);
    await settled();
    // Of what it is told when it comes.
    opened.news.length = 0;
    return opened;
  };
  /** Calls wait until they are let go, in any order. */
  const held: { call: FakeCall; done: (text?: string) => void; fail: (error: HostError) => void }[] = [];
  const hold = () => {
    host.onCall = (call) =>
      new Promise((resolve, reject) => {
        held.push({ call, done: (text = '{"content":[]}') => resolve(text), fail: reject });
      });
  };
  return { clock, broker, journal, host, service, events, connect, worker, held, hold };
}
