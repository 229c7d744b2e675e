/**
 * One connection of a worker, on the host's side: reads messages for the service, and sends what the service says.
 * Not here: which connection is the current one of its session (websocket-transport.ts), bytes and heartbeat (frame-socket.ts).
 *
 * Invariants: one unreadable message ends this connection and no other; every call that was read gets a receipt or a refusal, unless the
 * connection ends first.
 */
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type HostError, isHostError, notExecuted } from '../../kernel/errors.js';
import { FreshMap } from '../../kernel/fresh-map.js';
import { joinedParts, partsBytes } from '../../wire/json-edit.js';
import { brokerLimits } from '../protocol/limits.js';
import { type HostMessage, readWorkerMessage, type WorkerMessage, writeMessage } from '../protocol/messages.js';
import type { ServiceHandlers, WorkerSession } from '../service/transport.js';
import type { CloseReason } from './close-reasons.js';
import { FrameSocket, type FrameSocketReader } from './frame-socket.js';
import { itemBytes, slowMs, unansweredBytesMax, unansweredMax } from './limits.js';
import type { SendKind, WorkerTraffic } from './worker-traffic.js';

export interface ConnectionParts {
  readonly clock: Clock;
  readonly keyDigest: string;
  readonly session: WorkerSession;
  readonly traffic: WorkerTraffic;
  readonly handlers: ServiceHandlers;
  /** True: calls that arrive from now on are refused, and can be sent to the next host as if they had never been sent. */
  isStopping(): boolean;
  ended(reason: string): void;
}

export class HostConnection implements FrameSocketReader {
  readonly #socket: FrameSocket;
  readonly #below: Duplex;
  #isOver = false;
  /** Requests that are read and not answered, by the key or id that their answers have. A worker may use one key or id more than once. */
  readonly #unanswered = new FreshMap<string, { readonly count: number; readonly bytes: number }>();
  #unansweredCount = 0;
  #unansweredBytes = 0;
  /** Bytes that are sent and not flushed yet. */
  #unreadBytes = 0;
  #cancelSlow: Cancel | undefined;

  constructor(
    readonly parts: ConnectionParts,
    socket: WebSocket,
    below: Duplex,
  ) {
    this.#below = below;
    this.#socket = new FrameSocket(socket, below, parts.clock, this);
    below.on('data', this.#countIn);
    parts.traffic.add(this);
  }

  /** Everything that was read is answered. */
  get isAnswered(): boolean {
    return this.#unansweredCount === 0;
  }

  frame(bytes: Buffer | undefined): void {
    if (this.#isOver) return;
    try {
      if (bytes === undefined) throw notExecuted('invalid_request', 'a binary message is not part of the protocol');
      this.#read(readWorkerMessage(bytes), bytes.length);
    } catch (error) {
      this.cut('bad_frame', isHostError(error) ? error.message : 'a message could not be read');
    }
  }

  /**
   * Returns false if the message cannot be sent now. Receipts, refusals and answers to `ask` are always sent: they are small, and
   * as many as the requests that are read.
   */
  send(message: HostMessage): boolean {
    const { traffic } = this.parts;
    if (this.#isOver) return false;
    this.#noteAnswer(message);
    const parts = writeMessage(message);
    const bytes = partsBytes(parts);
    if (!traffic.take(bytes, sendKind(message))) return false;
    this.#write(joinedParts(parts, bytes));
    return true;
  }

  /**
   * Reads nothing while the worker is above its rate, while too many of its requests have no answer, and while the worker does not read
   * its answers, which would fill the memory.
   */
  pace(): void {
    const isFull = this.#unansweredCount >= unansweredMax || this.#unansweredBytes >= unansweredBytesMax;
    const isUnread = this.#unreadBytes > brokerLimits.messageBytes;
    this.#socket.setPaused(isFull || isUnread || this.parts.traffic.rate.isPaused);
  }

  /** Ends the connection from this side. Nothing more is read from it. */
  cut(reason: CloseReason, detail = ''): void {
    if (this.#isOver) return;
    this.ended(reason);
    if (reason === 'slow_consumer') this.#socket.terminate(reason);
    else this.#socket.close(reason, detail);
  }

  ended(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelSlow?.();
    this.#below.off('data', this.#countIn);
    this.parts.traffic.remove(this, this.#unreadBytes);
    this.parts.ended(reason);
  }

  #read(message: WorkerMessage, bytes: number): void {
    const { handlers, isStopping, session, traffic } = this.parts;
    traffic.rate.use(itemBytes * ('keys' in message ? 1 + message.keys.length : 1));
    const id = requestId(message);
    if (id !== undefined) this.#countUnanswered(id, 1, bytes);
    if (message.op === 'call' && isStopping())
      return void this.send({ op: 'refused', key: message.key, error: stopping() });
    handlers.heard(session, message);
  }

  #noteAnswer(message: HostMessage): void {
    const id = requestId(message) ?? '';
    const waiting = this.#unanswered.get(id);
    // The last answer releases the rest of the bytes.
    if (waiting) this.#countUnanswered(id, -1, -Math.floor(waiting.bytes / waiting.count));
  }

  #countUnanswered(id: string, requests: 1 | -1, ofBytes: number): void {
    const waiting = this.#unanswered.get(id);
    const [count, bytes] = [(waiting?.count ?? 0) + requests, (waiting?.bytes ?? 0) + ofBytes];
    if (count > 0) this.#unanswered.set(id, { count, bytes });
    else this.#unanswered.delete(id);
    this.#unansweredCount += requests;
    this.#unansweredBytes += ofBytes;
    this.pace();
  }

  readonly #countIn = (chunk: Buffer): void => {
    this.parts.traffic.rate.use(chunk.length);
  };

  #write(frame: Buffer): void {
    const { traffic } = this.parts;
    const bytes = frame.length;
    traffic.rate.use(bytes);
    this.#unreadBytes += bytes;
    this.#cancelSlow ??= this.#slowLater();
    this.#socket.send(frame, () => {
      if (this.#isOver) return;
      this.#unreadBytes -= bytes;
      traffic.release(bytes);
      this.#cancelSlow?.();
      this.#cancelSlow = this.#unreadBytes > 0 ? this.#slowLater() : undefined;
      this.pace();
    });
    this.pace();
  }

  #slowLater(): Cancel {
    const { clock } = this.parts;
    return clock.at(clock.nowMs() + slowMs, () => this.cut('slow_consumer'));
  }
}

/** The key or id that a request and its answer have. Undefined: the message is neither. */
function requestId(message: WorkerMessage | HostMessage): string | undefined {
  if ('id' in message) return message.id;
  return message.op === 'call' || message.op === 'receipt' || message.op === 'refused' ? message.key : undefined;
}

/** These may be dropped: a worker asks for a reply or a manifest that it misses. */
function sendKind({ op }: HostMessage): SendKind {
  if (op === 'progress') return 'progress';
  return op === 'reply' || op === 'manifest' ? 'reply' : 'must';
}

const stopping = (): HostError => notExecuted('transport', 'the host is stopping', undefined, { reason: 'stopping' });
