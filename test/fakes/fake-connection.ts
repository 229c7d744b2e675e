/** A connection of a worker whose answers the test gives. */
import type { AskedCalls, CallRequest } from '../../src/broker/protocol/messages.js';
import type { Receipt, WorkerConnection } from '../../src/broker/worker/connection.js';
import { HostError } from '../../src/kernel/errors.js';

export interface Sent {
  readonly request: CallRequest;
  readonly receive: (receipt?: Partial<Receipt>) => void;
  readonly fail: (error: HostError) => void;
}

export interface Asked {
  readonly keys: readonly string[];
  readonly answer: (asked: AskedCalls) => void;
  readonly fail: (error: HostError) => void;
}

export class FakeConnection implements WorkerConnection {
  readonly worker = 'w1';
  readonly role = 'reader';
  readonly storeId: string;
  readonly closed = new Promise<HostError | undefined>(() => {});
  readonly sent: Sent[] = [];
  readonly asked: Asked[] = [];
  readonly cancelled: string[] = [];
  readonly ackedKeys: string[][] = [];

  constructor(storeId = 'store-1') {
    this.storeId = storeId;
  }

  get requests(): readonly CallRequest[] {
    return this.sent.map(({ request }) => request);
  }

  /** The latest sending of this key. */
  last(key: string): Sent {
    const found = this.sent.filter(({ request }) => request.key === key).at(-1);
    if (!found) throw new Error(`${key} was not sent`);
    return found;
  }

  call(request: CallRequest): Promise<Receipt> {
    return new Promise((resolve, reject) => {
      const receive = (receipt: Partial<Receipt> = {}) =>
        resolve({ owner: `owner of ${this.storeId}`, storeId: this.storeId, ...receipt });
      this.sent.push({ request, receive, fail: reject });
    });
  }

  ask(keys: readonly string[]): Promise<AskedCalls> {
    return new Promise((resolve, reject) => {
      this.asked.push({ keys, answer: resolve, fail: reject });
    });
  }

  cancel(key: string): void {
    this.cancelled.push(key);
  }

  acknowledge(keys: readonly string[]): void {
    this.ackedKeys.push([...keys]);
  }

  manifest(): Promise<Buffer> {
    return new Promise(() => {});
  }

  async close(): Promise<void> {}
}

export const lost = (execution?: 'not_executed' | 'uncertain'): HostError =>
  new HostError('transport', 'the connection was lost', { reason: 'closed', ...(execution ? { execution } : {}) });
