/**
 * A request as our server takes it: its body goes from the parser to its reader at once. As a stream each would first wait for
 * three turns of Node's queue, and cost more than all that is done with it here.
 * Not here: what a body may be (request-body.ts), what headers mean (request-head.ts).
 *
 * Invariants: until somebody takes the body, and where nobody does, it is a stream like any other; whoever took it is told of its
 * end or of the end of its sender, never of both.
 */
import { IncomingMessage } from 'node:http';
import type { BodyReader } from './request-body.js';
import { RequestHead } from './request-head.js';

export class DirectBodyRequest extends IncomingMessage {
  // Node's types know both as plain members, which a getter must not stand for.
  static {
    Object.defineProperties(DirectBodyRequest.prototype, {
      /**
       * Node's server asks each request for these two and would sort all of its headers into an object for them. Whoever else
       * wants one asks the head.
       */
      headers: {
        get(this: DirectBodyRequest) {
          const { host, expect } = this.head;
          return { host, expect };
        },
      },
      /** Lets the parser forget it with its answer: its end was told, though not as a stream's. */
      readableEnded: {
        get(this: DirectBodyRequest) {
          return this.#reader ? this.complete : this._readableState.endEmitted;
        },
      },
    });
  }

  #head: RequestHead | undefined;
  #reader: BodyReader | undefined;
  /** Node's own word for a body that is read: it need not be thrown away after the answer. */
  declare _consuming: boolean;
  declare readonly _readableState: { readonly endEmitted: boolean };

  get head(): RequestHead {
    this.#head ??= new RequestHead(this.rawHeaders);
    return this.#head;
  }

  takeBody(reader: BodyReader): void {
    this.#reader = reader;
    this._consuming = true;
  }

  /** The parser's way to tell of a piece, and with null of the end. */
  override push(piece: unknown, encoding?: BufferEncoding): boolean {
    const reader = this.#reader;
    if (!reader) return super.push(piece, encoding);
    if (piece === null) {
      this.#reader = ended;
      reader.end();
    } else reader.piece(piece as Buffer);
    return true;
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#reader?.left();
    super._destroy(error, done);
  }
}

/** Whatever a parser may still say. */
const ended: BodyReader = { piece: () => {}, end: () => {}, left: () => {} };
