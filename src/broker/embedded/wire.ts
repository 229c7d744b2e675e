/**
 * One connection as both of its ends see it, without saying what it is made of: a WebSocket (ws-wire.ts), or two functions of
 * one process (local-wire.ts).
 * Invariant: whoever reads is called for one frame at a time, and never from within a `send`.
 */
export interface Wire {
  /** `flushed` runs once when the bytes have left the process, or never will. */
  send(frame: Buffer, flushed?: () => void): void;
  /** Sent, and still in this process. */
  readonly bufferedBytes: number;
  /** Asks for no more frames; those that came already still arrive. */
  pause(): void;
  resume(): void;
  /** Whoever is at the other end said who it is: from now on it may send as much as its window and its rate allow. */
  welcomed?(): void;
  /** What was sent before still goes out, as far as the other end takes it. `WireReader.ended` follows. */
  close(why: CloseReason): void;
}

export interface WireReader {
  frame(bytes: Buffer): void;
  /** The other end gave a sign of life. */
  heard(): void;
  /**
   * It sent a ping or a pong, which are no frames and so are not held back by `pause`. `answer` is there for a ping; who does
   * not have this leaves answering to the wire.
   */
  control?(answer: ((flushed: () => void) => void) | undefined): void;
  /** Once, and nothing after it. */
  ended(why: string): void;
}

/** Codes of a WebSocket that are free for an application, and the words that go with them. */
export const closeReasons = {
  bye: 1000,
  going_away: 1001,
  bad_frame: 4400,
  refused: 4401,
  hello_timeout: 4408,
  replaced: 4409,
  slow_consumer: 4413,
  silent: 4414,
  too_fast: 4429,
} as const;

export type CloseReason = keyof typeof closeReasons;
