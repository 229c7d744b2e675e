/** A broker on a real port, and clients that write what they like to it. */
import { WebSocket } from 'ws';
import { type Broker, type BrokerOptions, openBroker } from '../../../src/broker/embedded/broker.js';
import type { BrokerEvent } from '../../../src/broker/embedded/events.js';
import { openHostLink } from '../../../src/broker/embedded/host-link.js';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import type { OpenHostLink, OpenWorkerLink } from '../../../src/broker/ports.js';
import { type Clock, systemClock } from '../../../src/kernel/clock.js';
import { eventually } from '../../eventually.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';
import { type Frame, hostCredential, keyOf, worker } from './core-bench.js';

export interface SocketBench {
  readonly broker: Broker;
  readonly url: string;
  readonly store: MemoryMailStore;
  readonly events: BrokerEvent[];
  host(over?: { url?: string; clock?: Clock }): OpenHostLink;
  worker(name: string, over?: { url?: string; clock?: Clock }): OpenWorkerLink;
  close(): Promise<void>;
}

export async function socketBench(options: Partial<BrokerOptions> = {}): Promise<SocketBench> {
  const store = new MemoryMailStore();
  const events: BrokerEvent[] = [];
  const broker = await openBroker({
    ...{ store, clock: systemClock, credentials: [worker('alice'), worker('bob'), hostCredential] },
    ...{ listen: { port: 0 }, onEvent: (event: BrokerEvent) => events.push(event) },
    ...options,
  });
  const url = broker.url as string;
  const clock = options.clock ?? systemClock;
  return {
    ...{ broker, url, store, events },
    host: (over = {}) => openHostLink({ url, clock, key: keyOf('host'), ...over }),
    worker: (name, over = {}) => openWorkerLink({ url, clock, key: keyOf(name), ...over }),
    close: () => broker.close(),
  };
}

export class RawSocket {
  readonly socket: WebSocket;
  readonly frames: Frame[] = [];
  closed: { code: number; reason: string } | undefined;
  status: number | undefined;
  isOpen = false;

  constructor(url: string, headers: Record<string, string> = {}) {
    this.socket = new WebSocket(url, { headers, perMessageDeflate: true });
    this.socket.on('open', () => {
      this.isOpen = true;
    });
    this.socket.on('error', () => undefined);
    this.socket.on('unexpected-response', (request, response) => {
      this.status = response.statusCode;
      request.destroy();
    });
    this.socket.on('message', (data: Buffer) => this.frames.push(JSON.parse(data.toString()) as Frame));
    this.socket.on('close', (code, reason) => {
      this.closed = { code, reason: reason.toString() };
    });
  }

  static async open(url: string, headers?: Record<string, string>): Promise<RawSocket> {
    const raw = new RawSocket(url, headers);
    await eventually('an open socket', () => raw.isOpen);
    return raw;
  }

  say(frame: object | string | Buffer): this {
    this.socket.send(typeof frame === 'string' || Buffer.isBuffer(frame) ? frame : JSON.stringify(frame));
    return this;
  }

  hello(name: string): this {
    return this.say({ kind: 'hello', v: 1, key: keyOf(name) });
  }
}
