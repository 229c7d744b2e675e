/**
 * A WebSocket as a wire, on either side.
 * Not here: its limits, which are set where it is made (ws-server.ts, ws-client.ts); what frames say.
 *
 * Invariants: whoever reads hears of the end once, after the last frame, with the reason of whichever side gave one; a binary
 * message is no frame, and is handed on as an empty one.
 */
import type { Duplex } from 'node:stream';
import type { RawData, WebSocket } from 'ws';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { Heartbeat } from './heartbeat.js';
import { brokerLimits } from './limits.js';
import { type CloseReason, closeReasons, type Wire, type WireReader } from './wire.js';

/** For the last words and the answer to them. */
const goodbyeMs = 1_000;
const reasonOf = new Map<number, CloseReason>(
  Object.entries(closeReasons).map(([reason, code]) => [code, reason as CloseReason]),
);
const noFrame = Buffer.alloc(0);
/** What waits for the end of its turn, at most. */
const gatheredBytesMax = 64 * 1024;
/** Of a frame besides its content, at least. */
const headBytes = 2;

export class WsWire implements Wire {
  readonly #socket: WebSocket;
  readonly #below: Duplex;
  readonly #clock: Clock;
  readonly #heartbeat: Heartbeat;
  #reader: WireReader | undefined;
  #lost: CloseReason | undefined;
  #cancelGoodbye: Cancel = () => {};
  #unmeter: () => void = () => {};
  #gatheredBytes = 0;

  /** `below` is what the socket writes to. */
  constructor(
    socket: WebSocket,
    below: Duplex,
    clock: Clock,
    { pingMs, pongMs }: { readonly pingMs: number; readonly pongMs: number },
  ) {
    this.#socket = socket;
    this.#below = below;
    this.#clock = clock;
    this.#heartbeat = new Heartbeat({
      ...{ clock, pingMs, pongMs },
      ping: () => socket.ping(),
      lost: () => this.#end('silent'),
    });
    // What a WebSocket says of its end follows as `close`.
    socket.on('error', () => undefined);
    socket.on('ping', (data: Buffer) => this.#pinged(data));
    socket.on('pong', () => {
      this.#heard();
      this.#reader?.control?.(undefined);
    });
    socket.on('message', (data: RawData, isBinary: boolean) => {
      this.#heard();
      this.#reader?.frame(isBinary || !Buffer.isBuffer(data) ? noFrame : data);
    });
    socket.on('close', (code: number) => {
      this.#heartbeat.stop();
      this.#cancelGoodbye();
      this.#reader?.ended(this.#lost ?? reasonOf.get(code) ?? `closed with ${code}`);
    });
  }

  /** Once, before anything can have come. */
  readBy(reader: WireReader): void {
    this.#reader = reader;
  }

  /** What comes before the welcome is cut off at so many bytes: a stranger is worth no more memory. */
  meter(bytesMax: number): void {
    const below = this.#below;
    let bytes = 0;
    const count = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > bytesMax) below.destroy();
    };
    below.on('data', count);
    this.#unmeter = () => below.off('data', count);
  }

  welcomed(): void {
    this.#unmeter();
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  send(frame: Buffer, flushed?: () => void): void {
    this.#gather(frame.length + headBytes);
    this.#socket.send(frame, { binary: false }, flushed && (() => flushed()));
    if (this.#gatheredBytes > gatheredBytesMax) this.#letGo();
  }

  pause(): void {
    this.#heartbeat.stop();
    this.#socket.pause();
  }

  resume(): void {
    this.#heartbeat.resume();
    this.#reader?.heard();
    this.#socket.resume();
  }

  close(why: CloseReason): void {
    // Who does not read has no use for a last word.
    if (why === 'silent' || why === 'slow_consumer') return this.#end(why);
    this.#socket.resume();
    this.#socket.close(closeReasons[why], why);
    this.#cancelGoodbye = this.#clock.at(this.#clock.nowMs() + goodbyeMs, () => this.#socket.terminate());
  }

  /** Frames of one turn leave in one write: by themselves, each would cost as much as all that is done with it. */
  #gather(bytes: number): void {
    if (this.#gatheredBytes === 0) {
      this.#below.cork();
      process.nextTick(() => this.#letGo());
    }
    this.#gatheredBytes += bytes;
  }

  #letGo(): void {
    if (this.#gatheredBytes === 0) return;
    this.#gatheredBytes = 0;
    this.#below.uncork();
  }

  #pinged(data: Buffer): void {
    this.#heard();
    const answer = (flushed: () => void) => this.#socket.pong(data, undefined, () => flushed());
    if (this.#reader?.control) this.#reader.control(answer);
    else if (this.bufferedBytes <= brokerLimits.outboundBytes) answer(() => {});
  }

  #heard(): void {
    this.#heartbeat.heard();
    this.#reader?.heard();
  }

  #end(why: CloseReason): void {
    this.#lost = why;
    this.#socket.terminate();
  }
}
