/** A connection of a worker whose answers the test gives. */
import type { AskedCalls, CallRequest, HostMessage, WorkerMessage } from '../../src/broker/protocol/messages.js';
import type { WorkerConnection } from '../../src/broker/worker/connection.js';
import { HostError } from '../../src/kernel/errors.js';

export interface Sent {
  readonly request: CallRequest;
  readonly leave: () => void;
  readonly receive: () => void;
  readonly fail: (error: HostError) => void;
}

export interface Asked {
  readonly keys: readonly string[];
  readonly answer: (asked: AskedCalls) => void;
}

export class FakeConnection implements WorkerConnection {
  readonly worker = 'w1';
  readonly role = 'reader';
  readonly storeId: string;
  readonly answerMs = 10_000;
  isUnread = false;
  /** Messages certainly do not arrive. */
  isOver = false;
  readonly closed = new Promise<HostError | undefined>(() => {});
  readonly sent: Sent[] = [];
  readonly asked: Asked[] = [];
  readonly cancelled: string[] = [];
  readonly ackedKeys: string[][] = [];
  /** Messages leave only when the test says so. */
  isSlow = false;
  /** Gets the answers. */
  heard: (message: HostMessage) => void = () => {};

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

  send(message: WorkerMessage, sent?: () => void): boolean {
    if (this.isOver) return false;
    if (message.op === 'cancel') this.cancelled.push(message.key);
    if (message.op === 'ack') this.ackedKeys.push([...message.keys]);
    if (message.op === 'ask') {
      const { id, keys } = message;
      this.asked.push({ keys, answer: (asked) => this.heard({ op: 'asked', id, ...asked }) });
    }
    if (message.op === 'call') {
      const { op: _op, ...request } = message;
      const { key } = request;
      const receive = () => this.heard({ op: 'receipt', key, owner: 'owner', storeId: this.storeId });
      this.sent.push({
        request,
        receive,
        leave: () => sent?.(),
        fail: (error) => this.heard({ op: 'refused', key, error }),
      });
    }
    if (!this.isSlow) sent?.();
    return true;
  }

  async close(): Promise<void> {}
}

/** A refusal after which the call is sent again. */
export const lost = (execution?: 'not_executed' | 'uncertain'): HostError =>
  new HostError('transport', 'the connection was lost', { reason: 'closed', ...(execution ? { execution } : {}) });
