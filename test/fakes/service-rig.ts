/** A service over a log in memory, and workers that send messages and record the answers. */
import type { BrokerEvent } from '../../src/broker/broker-events.js';
import type { CallRequest, HostMessage } from '../../src/broker/protocol/messages.js';
import { readManifestBody, readReplyBody } from '../../src/broker/protocol/reply-body.js';
import { BrokerService, type BrokerServiceOptions } from '../../src/broker/service/broker-service.js';
import type { WorkerIdentity, WorkerSession } from '../../src/broker/service/transport.js';
import type { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { type FakeServer, FakeUpstreams } from './fake-upstreams.js';
import { MemoryCallLog, MemoryRows } from './memory-call-log.js';

export const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A promise that the test resolves. */
export function gate<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** One worker process. */
export class RigWorker implements WorkerSession {
  readonly id: string;
  readonly name: string;
  readonly epoch: string;
  readonly heard: HostMessage[] = [];
  /** `receipt` or the code of the refusal, by key. */
  readonly answers = new Map<string, string>();
  readonly refusals = new Map<string, HostError>();
  isReading = true;
  now: WorkerIdentity | undefined;
  readonly #rig: ServiceRig;

  constructor(rig: ServiceRig, name: string, role: string | undefined, id: string, epoch = 'e1') {
    this.#rig = rig;
    this.id = id;
    this.name = name;
    this.epoch = epoch;
    this.now = { name, epoch, role };
  }

  identity(): WorkerIdentity | undefined {
    return this.now?.epoch === this.epoch ? this.now : undefined;
  }

  send(message: HostMessage): boolean {
    if (message.op === 'receipt') return this.answers.set(message.key, 'receipt').size > 0;
    if (message.op === 'refused') {
      this.answers.set(message.key, message.error.code);
      return this.refusals.set(message.key, message.error).size > 0;
    }
    if (this.isReading) this.heard.push(message);
    return this.isReading;
  }

  /** Sends a call and runs all work that needs no passage of time. */
  async call(key: string, tool: string, args: unknown = {}, more: Partial<CallRequest> = {}): Promise<void> {
    const request: CallRequest = {
      ...{ key, tool, deadlineMs: 10_000, server: undefined, args: Buffer.from(JSON.stringify(args)) },
      ...{ sentBefore: undefined, isCallersKey: false, wantsProgress: false, manifestRevision: undefined },
      ...{ trace: undefined, ...more },
    };
    this.#rig.service.heard(this, { op: 'call', ...request });
    await settled();
  }

  acknowledge(...keys: string[]): void {
    this.#rig.service.heard(this, { op: 'ack', keys });
  }

  /** The outcome: the text of the result, or the error. */
  outcome(key: string): string | HostError | undefined {
    const reply = this.heard.findLast((message) => message.op === 'reply' && message.key === key);
    if (reply?.op !== 'reply') return this.refusals.get(key);
    const read = readReplyBody(reply.body);
    return read.kind === 'result' ? read.bytes.toString() : read.error;
  }

  async tools(): Promise<string[]> {
    return readManifestBody(await this.#rig.service.manifest(this)).tools.map(({ name }) => name);
  }

  revisions(): string[] {
    return this.heard.flatMap((message) => (message.op === 'manifest_changed' ? [message.revision] : []));
  }
}

export class ServiceRig {
  readonly clock = new FakeClock();
  readonly rows = new MemoryRows(this.clock);
  readonly events: BrokerEvent[] = [];
  readonly workers: RigWorker[] = [];
  readonly host: FakeUpstreams;
  log: MemoryCallLog;
  service: BrokerService;
  readonly #more: Partial<BrokerServiceOptions>;

  constructor(servers: Readonly<Record<string, FakeServer>>, more: Partial<BrokerServiceOptions> = {}) {
    this.host = new FakeUpstreams(servers);
    this.#more = more;
    this.log = new MemoryCallLog(this.clock, this.rows);
    this.service = this.#start();
  }

  worker(name = 'w1', role: string | undefined = 'r1', id = `s${this.workers.length}`, epoch?: string): RigWorker {
    const worker = new RigWorker(this, name, role, id, epoch);
    this.workers.push(worker);
    return worker;
  }

  /** Simulates the death of the host and a new start with the same store. */
  async restart(): Promise<void> {
    await this.log.close();
    this.log = new MemoryCallLog(this.clock, this.rows);
    this.service = this.#start();
  }

  #start(): BrokerService {
    const { host, log, clock } = this;
    const service = new BrokerService({
      ...{ host, log, clock, runningPerWorker: 64, onEvent: (event) => this.events.push(event) },
      ...this.#more,
    });
    service.attach({
      notify: (isWanted, message) => {
        for (const worker of this.workers) if (worker.now && isWanted(worker.now)) worker.send(message);
      },
      connectedWorkers: 0,
      stop: async () => {},
      close: async () => {},
    });
    return service;
  }
}
