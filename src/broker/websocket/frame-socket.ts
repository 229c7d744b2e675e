/**
 * A WebSocket on either side, as whole text messages with a heartbeat.
 * Not here: the meaning of messages.
 *
 * Invariants: messages of one turn of the event loop leave in one write; the end is reported once, after the last message, with
 * the reason of the side that ended it.
 */
import type { Duplex } from 'node:stream';
import type { RawData, WebSocket } from 'ws';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { brokerLimits } from '../protocol/limits.js';
import { type CloseReason, closeCodes, closeReasonOf, closeText } from './close-reasons.js';
import { chunksMax, fragmentsMax, goodbyeMs, heartbeatMs } from './limits.js';

/** Options of both `WebSocket` and `WebSocketServer`. UTF-8 is checked with the JSON of each message. */
export const socketOptions = {
  ...{ perMessageDeflate: false, autoPong: false, skipUTF8Validation: true },
  ...{ maxPayload: brokerLimits.messageBytes, maxFragments: fragmentsMax, maxBufferedChunks: chunksMax },
};

export interface FrameSocketReader {
  /** Undefined: a binary message, which is not part of the protocol. */
  frame(bytes: Buffer | undefined): void;
  /** `reason`: a `CloseReason`, or `closed_` with the code of the close frame. `text`: of the other side. */
  ended(reason: string, text: string): void;
}

/** Corked bytes above this are written before the end of the turn. */
const corkedBytesMax = 64 * 1024;
/** With more unread bytes than this, pings are not answered. */
const pongBufferedMax = 64 * 1024;
const frameHeadBytes = 14;

export class FrameSocket {
  readonly #socket: WebSocket;
  readonly #below: Duplex;
  readonly #clock: Clock;
  readonly #heartbeat: Heartbeat;
  #ownReason: CloseReason | undefined;
  #cancelGoodbye: Cancel = () => {};
  #corkedBytes = 0;

  /** `below`: the TCP or TLS socket. */
  constructor(socket: WebSocket, below: Duplex, clock: Clock, reader: FrameSocketReader) {
    this.#socket = socket;
    this.#below = below;
    this.#clock = clock;
    this.#heartbeat = new Heartbeat({ clock, ping: () => socket.ping(), lost: () => this.terminate('silent') });
    // The event `close` follows, and reports the end.
    socket.on('error', () => undefined);
    // Any bytes show that the peer is alive: over a slow network a pong is queued behind a message of megabytes.
    below.on('data', () => this.#heartbeat.heard());
    socket.on('ping', (data: Buffer) => {
      // A peer that reads needs no pong while other bytes are sent to it. A peer that does not read must not fill the memory with pongs.
      if (socket.bufferedAmount <= pongBufferedMax) socket.pong(data);
    });
    socket.on('message', (data: RawData, isBinary: boolean) => {
      if (this.#ownReason === undefined) reader.frame(isBinary || !Buffer.isBuffer(data) ? undefined : data);
    });
    socket.on('close', (code: number, text: Buffer) => {
      this.#heartbeat.stop();
      this.#cancelGoodbye();
      if (this.#ownReason) reader.ended(this.#ownReason, '');
      else reader.ended(closeReasonOf(code), text.toString());
    });
  }

  send(frame: Buffer, flushed?: () => void): void {
    if (this.#ownReason !== undefined) return flushed?.();
    if (this.#corkedBytes === 0) {
      this.#below.cork();
      process.nextTick(() => this.#uncork());
    }
    this.#corkedBytes += frame.length + frameHeadBytes;
    this.#socket.send(frame, { binary: false }, flushed && (() => flushed()));
    if (this.#corkedBytes > corkedBytesMax) this.#uncork();
  }

  setPaused(isPaused: boolean): void {
    if (isPaused === this.#socket.isPaused || this.#ownReason !== undefined) return;
    if (isPaused) {
      this.#heartbeat.stop();
      this.#socket.pause();
    } else {
      this.#heartbeat.start();
      this.#socket.resume();
    }
  }

  /** Nothing that arrives afterwards is read. */
  close(reason: CloseReason, detail = ''): void {
    if (this.#ownReason !== undefined) return;
    this.setPaused(false);
    this.#ownReason = reason;
    this.#socket.close(closeCodes[reason], closeText(detail));
    this.#cancelGoodbye = this.#clock.at(this.#clock.nowMs() + goodbyeMs, () => this.#socket.terminate());
  }

  /** For a peer that does not read: without a close frame. */
  terminate(reason: CloseReason): void {
    this.#ownReason ??= reason;
    this.#socket.terminate();
  }

  #uncork(): void {
    if (this.#corkedBytes === 0) return;
    this.#corkedBytes = 0;
    this.#below.uncork();
  }
}

/** Sends a ping after every second interval, and reports that the other end is gone if nothing arrives within one interval after it. */
export class Heartbeat {
  #isAsked = false;
  #cancel: Cancel = () => {};

  constructor(private readonly parts: { readonly clock: Clock; ping(): void; lost(): void }) {
    this.start();
  }

  /** Call it for anything that arrives: the other end is alive. */
  heard(): void {
    this.#isAsked = false;
  }

  /** While a socket is paused, its silence means nothing. */
  stop(): void {
    this.#cancel();
  }

  start(): void {
    this.#cancel();
    this.#isAsked = false;
    this.#wait(false);
  }

  #wait(isPingDue: boolean): void {
    const { clock, ping, lost } = this.parts;
    this.#cancel = clock.at(clock.nowMs() + heartbeatMs, () => {
      if (this.#isAsked) return lost();
      this.#isAsked = isPingDue;
      this.#wait(!isPingDue);
      if (isPingDue) ping();
    });
  }
}
