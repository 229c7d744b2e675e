/**
 * A simulated host that serves one worker on the clock of the host, with a log in memory. The worker acknowledges each reply, so
 * that the log removes it.
 */

import type { HostMessage } from '../../src/broker/protocol/messages.js';
import { readReplyBody } from '../../src/broker/protocol/reply-body.js';
import { BrokerService } from '../../src/broker/service/broker-service.js';
import type { WorkerSession } from '../../src/broker/service/transport.js';
import type { HostError } from '../../src/kernel/errors.js';
import type { Random } from '../../src/kernel/random.js';
import { FakeUpstreams } from '../fakes/fake-upstreams.js';
import { MemoryCallLog, MemoryRows } from '../fakes/memory-call-log.js';
import { SimulatedHost } from './simulated-host.js';

/** `ok`, or the code of the error and whether the call was executed. */
type Outcome = string;

/** Turns of the event loop that a message needs. */
const turns = 6;

export class SimulatedBroker {
  readonly host: SimulatedHost;
  readonly rows: MemoryRows;
  readonly service: BrokerService;
  readonly session: WorkerSession;
  readonly #waiting = new Map<string, (outcome: Outcome) => void>();
  #number = 0;

  private constructor(random: Random, server: string) {
    this.host = new SimulatedHost(random);
    const { clock } = this.host;
    this.rows = new MemoryRows(clock);
    const upstreams = new FakeUpstreams({ [server]: { tools: ['read', 'write'] } });
    upstreams.onCall = async ({ tool, args, options: { deadlineMs = 0, signal, principal } }) => {
      upstreams.calls.length = 0;
      const { bytes } = await this.host.call(server, tool, args, { deadlineMs, signal, principal });
      return bytes.toString();
    };
    const log = new MemoryCallLog(clock, this.rows);
    this.service = new BrokerService({ ...{ host: upstreams, log, clock }, runningPerWorker: 64 });
    const identity = { name: 'ann', epoch: 'e', role: 'all' };
    this.session = { ...identity, id: 's', identity: () => identity, send: (message) => this.#hear(message) };
  }

  /** Opens a host with one server, configured by `entry`. */
  static async open(
    random: Random,
    server: string,
    entry: Readonly<Record<string, unknown>>,
  ): Promise<SimulatedBroker> {
    const broker = new SimulatedBroker(random, server);
    broker.host.add(server, { command: 'x', ...entry }, false);
    await broker.advance(0);
    return broker;
  }

  /** Resolves with the outcome of the reply, which needs `advance`. */
  call(tool: 'read' | 'write', deadlineMs = 60_000): Promise<Outcome> {
    const key = `k${this.#number++}`;
    const none = { server: undefined, manifestRevision: undefined, trace: undefined, sentBefore: undefined };
    const request = { ...none, wantsProgress: false, isCallersKey: false, key, deadlineMs, tool };
    return new Promise((resolve) => {
      this.#waiting.set(key, resolve);
      const args = Buffer.from(JSON.stringify({ nonce: key }));
      this.service.heard(this.session, { op: 'call', ...request, args });
    });
  }

  async advance(ms: number): Promise<void> {
    await this.#settle();
    await this.host.clock.advanceAsync(ms);
    await this.#settle();
  }

  /** Number of calls without a reply. */
  get open(): number {
    return this.#waiting.size;
  }

  /** Advances the clock, because servers need time to end. */
  async close(): Promise<void> {
    this.service.close();
    const closing = this.host.close();
    await this.host.clock.advanceAsync(10_000);
    await closing;
  }

  #hear(message: HostMessage): boolean {
    if (message.op === 'refused') this.#end(message.key, outcomeOf(message.error));
    if (message.op !== 'reply') return true;
    const { key, body } = message;
    this.service.heard(this.session, { op: 'ack', keys: [key] });
    const reply = readReplyBody(body);
    this.#end(key, reply.kind === 'error' ? outcomeOf(reply.error) : 'ok');
    return true;
  }

  #end(key: string, outcome: Outcome): void {
    this.#waiting.get(key)?.(outcome);
    this.#waiting.delete(key);
  }

  async #settle(): Promise<void> {
    for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
  }
}

const outcomeOf = ({ code, details: { execution } }: HostError): Outcome => [code, execution].filter(Boolean).join(' ');
