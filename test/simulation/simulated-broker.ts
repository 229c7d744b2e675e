/**
 * A simulated host with a broker in it and a worker that calls through both, all on the host's clock. The broker is the embedded one
 * without a socket, with its disk in memory; the journal remembers nothing of a call that is over, so that what grows is not its.
 */
import { BrokerCore } from '../../src/broker/embedded/broker-core.js';
import { localHostLink } from '../../src/broker/embedded/host-link.js';
import { callRequest, readReply } from '../../src/broker/messages.js';
import type { CallClaim, CallJournal, Claimed } from '../../src/broker/ports.js';
import { BrokerService } from '../../src/broker/service/broker-service.js';
import { Cancellation } from '../../src/kernel/cancel-signal.js';
import type { Random } from '../../src/kernel/random.js';
import { RawClient, worker } from '../broker/embedded/core-bench.js';
import { FakeUpstreams } from '../fakes/fake-upstreams.js';
import { MemoryMailStore } from '../fakes/memory-mail-store.js';
import { SimulatedHost } from './simulated-host.js';

/** How a call ended for its worker: `ok`, or the code of its error and what is known of its execution. */
type Outcome = string;

class ForgetfulJournal implements CallJournal {
  readonly #running = new Set<string>();

  async claim({ mailbox, key }: CallClaim): Promise<Claimed> {
    const name = `${mailbox} ${key}`;
    if (this.#running.has(name)) return { kind: 'running' };
    this.#running.add(name);
    return { kind: 'mine' };
  }

  async find() {
    return undefined;
  }

  async finish(mailbox: string, key: string): Promise<void> {
    this.#running.delete(`${mailbox} ${key}`);
  }

  get size(): number {
    return this.#running.size;
  }
}

/** Turns of the event loop in which a message gets from one end to the other. */
const turns = 6;

const keysMax = 1_000;

export class SimulatedBroker {
  readonly host: SimulatedHost;
  readonly core: BrokerCore;
  readonly service: BrokerService;
  readonly journal = new ForgetfulJournal();
  readonly #waiting = new Map<string, (outcome: Outcome) => void>();
  #client: RawClient | undefined;
  #number = 0;

  private constructor(random: Random, server: string) {
    this.host = new SimulatedHost(random);
    const { clock } = this.host;
    this.core = new BrokerCore({ store: new MemoryMailStore(), clock, credentials: [worker('ann')] });
    const upstreams = new FakeUpstreams({ [server]: { tools: ['read', 'write'] } });
    upstreams.onCall = async ({ tool, args, options: { deadlineMs = 0, signal, principal } }) => {
      upstreams.calls.length = 0;
      const { bytes } = await this.host.call(server, tool, args, { deadlineMs, signal, principal });
      return bytes.toString();
    };
    this.service = new BrokerService({ host: upstreams, journal: this.journal, clock });
  }

  /** With one server, as `entry` says. */
  static async open(
    random: Random,
    server: string,
    entry: Readonly<Record<string, unknown>>,
  ): Promise<SimulatedBroker> {
    const broker = new SimulatedBroker(random, server);
    await broker.core.open();
    broker.service.attach(await localHostLink(broker.core)(broker.service, new Cancellation()));
    broker.host.add(server, { command: 'x', ...entry }, false);
    broker.#client = new RawClient(broker.core).subscribed('ann');
    await broker.advance(0);
    return broker;
  }

  /** Resolves when its reply is there, which needs `advance`. */
  call(tool: 'read' | 'write', deadlineMs = 60_000): Promise<Outcome> {
    // The last ten thousand keys are remembered: these are fewer, and what grows is not they.
    const callKey = `k${this.#number++ % keysMax}`;
    const none = { server: undefined, manifestRevision: undefined, trace: undefined };
    const args = JSON.stringify({ nonce: callKey });
    const call = { ...none, wantsProgress: false, isCallersKey: false, deadlineMs, tool, args };
    const body = JSON.parse(callRequest({ ...call, callKey }).toString()) as object;
    return new Promise((resolve) => {
      this.#waiting.set(callKey, resolve);
      this.#client?.say({ kind: 'deliver', id: callKey, type: 'request', to: 'host', ttlMs: deadlineMs, body });
    });
  }

  async advance(ms: number): Promise<void> {
    await this.#settle();
    await this.host.clock.advanceAsync(ms);
    await this.#settle();
  }

  /** Calls that have no reply yet. */
  get open(): number {
    return this.#waiting.size;
  }

  /** Servers take their time to end. */
  async close(): Promise<void> {
    this.service.close();
    await this.core.close();
    const closing = this.host.close();
    await this.host.clock.advanceAsync(10_000);
    await closing;
  }

  async #settle(): Promise<void> {
    for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
    const { wire } = this.#client ?? {};
    if (!wire) return;
    // A worker that is alive is heard of, whatever it has to say.
    this.#client?.reader.heard();
    const frames = wire.frames.splice(0);
    for (const frame of frames) {
      if (frame.kind !== 'message') continue;
      this.#client?.ack(frame);
      const reply = readReply(Buffer.from(JSON.stringify(frame.body)));
      const outcome =
        reply.kind === 'error' ? [reply.error.code, reply.error.details.execution].filter(Boolean).join(' ') : 'ok';
      this.#waiting.get(frame.id as string)?.(outcome);
      this.#waiting.delete(frame.id as string);
    }
  }
}
