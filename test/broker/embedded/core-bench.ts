/** A broker without sockets and disks, on a clock that moves when told, and clients that write their frames by hand. */
import { BrokerCore } from '../../../src/broker/embedded/broker-core.js';
import type { Credential } from '../../../src/broker/embedded/credentials.js';
import type { BrokerEvent } from '../../../src/broker/embedded/events.js';
import type { BrokerLimits } from '../../../src/broker/embedded/limits.js';
import type { CloseReason, Wire, WireReader } from '../../../src/broker/embedded/wire.js';
import { digestOf } from '../../../src/config/keys.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';

export const keyOf = (name: string): string => `${name}-secret-${'k'.repeat(24)}`;

export const worker = (name: string, over: Partial<Credential> = {}): Credential => ({
  ...{ name, digest: digestOf(keyOf(name)), mailbox: name, role: 'researcher', kind: 'worker' },
  ...{ sendsTo: ['host'], expiresAtMs: undefined },
  ...over,
});
export const hostCredential: Credential = {
  ...{ name: 'the-host', digest: digestOf(keyOf('host')), mailbox: 'host', role: undefined, kind: 'host' },
  ...{ sendsTo: [], expiresAtMs: undefined },
};

export type Frame = Readonly<Record<string, unknown>> & { readonly kind: string };

/** The client's end: what the broker sends is written down, what it does not flush stays buffered. */
class FakeWire implements Wire {
  readonly frames: Frame[] = [];
  closed: CloseReason | undefined;
  isPaused = false;
  /** When false, nothing that is sent leaves. */
  isReading = true;
  bufferedBytes = 0;
  bufferedMax = 0;
  reader: WireReader | undefined;
  readonly #unread: { readonly frame: Buffer; readonly flushed: (() => void) | undefined }[] = [];

  send(frame: Buffer, flushed?: () => void): void {
    this.#unread.push({ frame, flushed });
    this.bufferedBytes += frame.length;
    this.bufferedMax = Math.max(this.bufferedMax, this.bufferedBytes);
    if (this.isReading) queueMicrotask(() => this.drain());
  }

  drain(): void {
    for (let next = this.#unread.shift(); next; next = this.#unread.shift()) {
      this.bufferedBytes -= next.frame.length;
      this.frames.push(JSON.parse(next.frame.toString()) as Frame);
      next.flushed?.();
    }
  }

  pause(): void {
    this.isPaused = true;
  }
  resume(): void {
    this.isPaused = false;
  }
  close(why: CloseReason): void {
    this.closed ??= why;
  }
}

export class RawClient {
  readonly wire = new FakeWire();
  readonly reader: WireReader;

  constructor(core: BrokerCore) {
    this.reader = core.attach(this.wire);
  }

  say(frame: object | string): this {
    this.reader.heard();
    this.reader.frame(Buffer.from(typeof frame === 'string' ? frame : JSON.stringify(frame)));
    return this;
  }

  hello(name: string, more: object = {}): this {
    return this.say({ kind: 'hello', v: 1, key: keyOf(name), ...more });
  }

  subscribed(name: string): this {
    return this.hello(name).say({ kind: 'subscribe' });
  }

  request(id: string, body: object = {}): this {
    return this.say({ kind: 'deliver', id, type: 'request', to: 'host', ttlMs: 60_000, body });
  }

  of(kind: string): Frame[] {
    return this.wire.frames.filter((frame) => frame.kind === kind);
  }

  ack({ seq, lease }: Frame): this {
    return this.say({ kind: 'ack', seq, lease });
  }
}

export interface CoreBench {
  readonly core: BrokerCore;
  readonly clock: FakeClock;
  readonly store: MemoryMailStore;
  readonly events: BrokerEvent[];
  client(): RawClient;
  /** Lets everything happen that needs no time. */
  settle(): Promise<void>;
}

export async function coreBench(
  limits: Partial<BrokerLimits> = {},
  credentials: readonly Credential[] = [worker('alice'), worker('bob'), hostCredential],
  store = new MemoryMailStore(),
): Promise<CoreBench> {
  const clock = new FakeClock();
  const events: BrokerEvent[] = [];
  const core = new BrokerCore({ store, clock, credentials, limits, onEvent: (event) => events.push(event) });
  await core.open();
  return {
    ...{ core, clock, store, events },
    client: () => new RawClient(core),
    settle: async () => {
      for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve));
    },
  };
}
