/**
 * Bytes of replies, manifests and progress that are on their way to nats-server. The client of NATS queues everything that is published. So
 * without a bound a worker that asks for large manifests faster than nats-server takes them would fill the memory of the host.
 * Not here: whether workers read (nats-server cuts those that do not).
 */
import { brokerLimits } from '../protocol/limits.js';
import type { HostMessage } from '../protocol/messages.js';

/** Bytes of one worker: as many as the log may have of its replies, so these always have room. */
const outboundOfWorkerMax = brokerLimits.replyBytesPerWorker;
/** After this many bytes nats-server is asked whether it has taken them. */
const flushBytes = 1024 * 1024;

export class Outbound {
  /** By worker: bytes published before the flush that waits for its answer, and bytes published after it. */
  #flushed = new Map<string, number>();
  #next = new Map<string, number>();
  #nextBytes = 0;
  #isFlushing = false;

  /** `flush` resolves when nats-server has taken all that was published before. */
  constructor(private readonly flush: () => Promise<void>) {}

  /** Returns false if there is no room for the message, which its worker asks for later. Messages that may not be dropped are not counted. */
  take(worker: string, message: HostMessage): boolean {
    const bytes = droppableBytes(message);
    if (bytes === 0) return true;
    const next = this.#next.get(worker) ?? 0;
    // Progress must not take the room of replies.
    const limit = message.op === 'progress' ? outboundOfWorkerMax / 2 : outboundOfWorkerMax;
    if ((this.#flushed.get(worker) ?? 0) + next + bytes > limit) return false;
    this.#next.set(worker, next + bytes);
    this.#nextBytes += bytes;
    return true;
  }

  /** Call it after messages were published. */
  published(): void {
    if (this.#isFlushing || this.#nextBytes < flushBytes) return;
    this.#isFlushing = true;
    [this.#flushed, this.#next, this.#nextBytes] = [this.#next, new Map(), 0];
    const flushed = () => {
      this.#isFlushing = false;
      this.#flushed = new Map();
      this.published();
    };
    // Flushes after the other messages of this turn. If the connection is lost, the flush rejects.
    Promise.resolve().then(this.flush).then(flushed, flushed);
  }
}

const droppableBytes = (message: HostMessage): number => {
  if (message.op === 'reply' || message.op === 'manifest') return message.body.length;
  return message.op === 'progress' ? message.params.length : 0;
};
