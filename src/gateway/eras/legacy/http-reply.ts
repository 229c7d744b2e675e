/**
 * The response to one POST of a legacy session: one JSON text, or a stream of events once there is more to say than the one
 * answer. A batch is always a stream.
 * Invariant: a lost connection ends nothing. What was said on a stream waits for the client to come back; a JSON text, which
 * nobody could ask for again, is dropped.
 */
import type { ServerResponse } from 'node:http';
import { type Random, randomInt } from '../../../kernel/random.js';
import { NEWEST_LEGACY_VERSION } from '../../../session/eras/legacy/revisions.js';
import type { JsonText } from '../../../wire/frame.js';
import type { IngressContext } from '../../http/ingress-context.js';
import { type HeaderList, writeJson } from '../../http/reply.js';
import { SseStream } from '../../http/sse-stream.js';
import type { EventStream } from './event-stream.js';
import type { LegacySession } from './http-session.js';

/** When a client that lost its stream comes back: spread, so that all do not come at once. */
const retryMsMin = 1_000;
const retryMsMax = 3_000;

/** Older clients take an event without data for a broken message. */
export const isPrimed = (version: string): boolean => version >= NEWEST_LEGACY_VERSION;

export const retryMs = (random: Random): number => randomInt(random, retryMsMin, retryMsMax);

export class LegacyReply {
  readonly #context: IngressContext;
  readonly #response: ServerResponse;
  readonly #session: LegacySession;
  #stream: EventStream | undefined;
  #owed: number;
  #isOver = false;

  constructor(
    context: IngressContext,
    response: ServerResponse,
    session: LegacySession,
    owed: number,
    isBatch: boolean,
  ) {
    this.#context = context;
    this.#response = response;
    this.#session = session;
    this.#owed = owed;
    if (isBatch) this.#open();
  }

  /** Nothing was written, and somebody still reads. */
  get isSilent(): boolean {
    return !this.#isOver && this.#stream === undefined && !this.#response.destroyed;
  }

  linger(): void {
    if (this.isSilent) this.#open();
  }

  /** Something before the answer. False: there is nobody who could ever read it. */
  tell(parts: readonly JsonText[]): boolean {
    if (this.#isOver) return false;
    const stream = this.#stream ?? this.#open();
    stream?.send(parts);
    return stream !== undefined;
  }

  /** One answer that is owed. */
  answer(parts: readonly JsonText[], status: number, headers: HeaderList = []): void {
    if (this.#isOver) return;
    this.#stream?.send(parts);
    if (--this.#owed > 0) return;
    this.#isOver = true;
    if (this.#stream) this.#session.endStream(this.#stream);
    else writeJson(this.#response, status, parts, this.#context.limits.writeStallMs, headers);
  }

  #open(): EventStream | undefined {
    if (this.#response.destroyed || this.#response.headersSent) return undefined;
    const { limits, beat, random } = this.#context;
    const stream = this.#session.newStream();
    this.#stream = stream;
    const reader = new SseStream(this.#response, limits, beat, []);
    if (isPrimed(this.#session.version)) reader.write(stream.primer(retryMs(random)));
    stream.attach(reader);
    // Older ones are primed with nothing; a comment is the first byte that everybody understands.
    if (!isPrimed(this.#session.version)) reader.beat();
    reader.flush();
    return stream;
  }
}
