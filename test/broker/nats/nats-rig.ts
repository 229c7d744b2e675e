/** Hosts and workers on a real nats-server, with a service that claims, counts what it runs, and answers. */
import { type NatsHost, type NatsHostOptions, natsHost } from '../../../src/broker/nats/nats-host.js';
import { openNatsWorkerLink } from '../../../src/broker/nats/nats-worker-link.js';
import type {
  Claimed,
  Delivery,
  HostHandlers,
  HostLink,
  OpenWorkerLink,
  Sender,
  WorkerLink,
} from '../../../src/broker/ports.js';
import { Cancellation } from '../../../src/kernel/cancel-signal.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';

export const never = new Cancellation();
export const inAnHour = (): Date => new Date(Date.now() + 3_600_000);

export interface RigHost {
  readonly host: NatsHost;
  readonly link: HostLink;
  readonly deliveries: Delivery[];
  readonly claims: Claimed[];
  /** Ids of what was run here, in order. */
  readonly ran: string[];
  readonly cancelled: string[];
  readonly joined: Sender[];
  /** The same host with a new link, after it lost the one it had. */
  reopen(): Promise<void>;
}

export interface RigHostOptions extends Partial<NatsHostOptions> {
  readonly url: string;
  readonly mailboxes?: readonly string[];
  /** Instead of claiming, running and answering. */
  readonly deliver?: (delivery: Delivery, rig: RigHost) => void;
  /** What running takes. */
  readonly run?: (delivery: Delivery) => Promise<void>;
  readonly isRepeatable?: boolean;
}

export async function startHost({ url, mailboxes = ['w1'], deliver, run, ...rest }: RigHostOptions): Promise<RigHost> {
  const host = natsHost({
    url,
    instance: 'h1',
    credentials: new Map(mailboxes.map((mailbox) => [mailbox, { role: 'reader' }])),
    durability: 'process',
    ...rest,
  });
  const rig: { -readonly [K in keyof RigHost]: RigHost[K] } = {
    host,
    link: undefined as unknown as HostLink,
    ...{ deliveries: [], claims: [], ran: [], cancelled: [], joined: [] },
    async reopen() {
      rig.link = await host.open(handlers, never);
    },
  };
  const handlers: HostHandlers = {
    deliver(delivery) {
      rig.deliveries.push(delivery);
      if (deliver) deliver(delivery, rig);
      else void serve(delivery, rig, run, rest.isRepeatable ?? false);
    },
    cancelled: (_from, id) => rig.cancelled.push(id),
    joined: (who) => rig.joined.push(who),
  };
  await rig.reopen();
  return rig;
}

/** As the service does it: claim, run, result in the journal, reply, acknowledge. */
export async function serve(
  delivery: Delivery,
  rig: RigHost,
  run: ((delivery: Delivery) => Promise<void>) | undefined,
  isRepeatable: boolean,
): Promise<void> {
  const { id, from, body, deadlineAt, bundle } = delivery;
  const { mailbox } = from;
  try {
    if (deadlineAt && deadlineAt < new Date()) {
      await delivery.reply('{"v":1,"error":{"code":"expired"}}');
      return delivery.ack();
    }
    const claim = { mailbox, key: id, bundle, hash: body.toString(), rememberUntil: inAnHour(), isRepeatable };
    const claimed = await rig.host.journal.claim(claim);
    rig.claims.push(claimed);
    switch (claimed.kind) {
      case 'mine': {
        rig.ran.push(id);
        await run?.(delivery);
        const reply = Buffer.from(`{"ran":${body}}`);
        await rig.host.journal.finish(mailbox, id, reply, bundle);
        await delivery.reply(reply);
        return delivery.ack();
      }
      case 'done':
        await delivery.reply(claimed.reply);
        return delivery.ack();
      case 'lost':
      case 'conflict':
        await delivery.reply(`{"${claimed.kind}":true}`);
        return delivery.ack();
      default:
        return delivery.release(500, claimed.kind);
    }
  } catch {
    delivery.release(200, 'the journal could not promise');
  }
}

export interface RigWorker {
  readonly link: WorkerLink;
  readonly replies: { readonly id: string; readonly body: string }[];
  readonly told: string[];
  bodyOf(id: string): string | undefined;
}

export const startWorker = (url: string, mailbox = 'w1', key?: string): Promise<RigWorker> =>
  reopenWorker(openNatsWorkerLink({ url, key, mailbox }));

/** The next link of the same process, which remembers what it sent before. */
export async function reopenWorker(open: OpenWorkerLink): Promise<RigWorker> {
  const replies: { id: string; body: string }[] = [];
  const told: string[] = [];
  const link = await open(
    {
      replied: (id, body) => replies.push({ id, body: body.toString() }),
      told: (body) => told.push(body.toString()),
    },
    never,
  );
  return { link, replies, told, bodyOf: (id) => replies.find((reply) => reply.id === id)?.body };
}

export const request = (id: string, body: unknown = { id }, ttlMs = 60_000) => ({
  id,
  body: Buffer.from(JSON.stringify(body)),
  ttlMs,
});

/** One whose id was made for it alone: it may go together with others. */
export const fresh = (id: string, body: unknown = { id }, ttlMs = 60_000) => ({
  ...request(id, body, ttlMs),
  isFresh: true,
});

/** A server, and the hosts and workers that were opened on it: what is begun before a test is ended after it. */
export class NatsStage {
  readonly hosts: RigHost[] = [];
  readonly workers: RigWorker[] = [];
  #server: NatsServerFake | undefined;

  get server(): NatsServerFake {
    if (!this.#server) throw new Error('no server was started');
    return this.#server;
  }

  readonly start = async (): Promise<void> => {
    this.#server = await startNatsServer();
  };

  readonly host = async (options: Partial<RigHostOptions> = {}): Promise<RigHost> => {
    const rig = await startHost({ url: this.server.url, ...options });
    this.hosts.push(rig);
    return rig;
  };

  readonly worker = async (mailbox = 'w1'): Promise<RigWorker> => {
    const rig = await startWorker(this.server.url, mailbox);
    this.workers.push(rig);
    return rig;
  };

  readonly stop = async (): Promise<void> => {
    await Promise.all(this.workers.splice(0).map(({ link }) => link.close()));
    await Promise.all(this.hosts.splice(0).map((rig) => rig.host.close()));
    await this.server.stop();
  };
}

export const isEmpty = (rig: RigHost) => async () => (await rig.host.depths()).every(({ count }) => count === 0);
export const ids = (count: number, prefix = 'k') => Array.from({ length: count }, (_, n) => `${prefix}${n}`);
export const sendAll = (w: RigWorker, all: readonly string[]) => Promise.all(all.map((id) => w.link.send(fresh(id))));
export const ranOf = (id: string) => `{"ran":{"id":"${id}"}}`;
