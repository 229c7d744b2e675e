/**
 * Which requests of a worker went together, remembered over its connections: what is sent again goes as it went before, under
 * the same name.
 * Not here: when requests go together, and sending them (nats-worker-link.ts).
 *
 * Invariants: an id is in one bundle at most, for as long as it may be sent again; what cannot be remembered is not bundled.
 */
import type { Clock } from '../../kernel/clock.js';
import type { NewRequest } from '../ports.js';
import { type BundledRequest, bundleBytesMax, bundleCallsMax } from './nats-bundle.js';

/** More than a worker has under way; past it requests go alone. */
const rememberedMax = 4_096;
const rememberedBytesMax = 64 * 1024 * 1024;
/** What nobody waits for any more is looked for when there is no room, and not more often than this. */
const lookMs = 1_000;

/** Its name, and the ids that went in it. */
export class SentBundle {
  constructor(
    readonly id: string,
    readonly ids: readonly string[],
  ) {}
}

interface Remembered {
  readonly bundle: SentBundle;
  readonly request: NewRequest;
  readonly untilMs: number;
}

export class RequestBundles {
  readonly #clock: Clock;
  /** Those without an answer. */
  readonly #byId = new Map<string, Remembered>();
  #bytes = 0;
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** What it went in, if it went in one. */
  of(id: string): SentBundle | undefined {
    return this.#byId.get(id)?.bundle;
  }

  /** Whether that one may go together with others. */
  takes({ body, isFresh }: NewRequest): boolean {
    return isFresh === true && body.length <= bundleBytesMax / 2 && (this.#hasRoom() || this.#makesRoom());
  }

  /** Named as the first of them, so that even that one alone would be refused as long as they are held. */
  add(requests: readonly NewRequest[]): SentBundle | undefined {
    const [first] = requests;
    if (first === undefined || requests.length < 2) return undefined;
    const bundle = new SentBundle(
      first.id,
      requests.map(({ id }) => id),
    );
    const nowMs = this.#clock.nowMs();
    for (const request of requests) {
      this.#byId.set(request.id, { bundle, request, untilMs: nowMs + request.ttlMs });
      this.#bytes += request.body.length;
    }
    return bundle;
  }

  /** As it is sent now: those that somebody may still wait for, with what is left of their time. */
  toSend({ ids }: SentBundle, isFirst: boolean): BundledRequest[] {
    const nowMs = this.#clock.nowMs();
    const left: BundledRequest[] = [];
    for (const id of ids) {
      const its = this.#byId.get(id);
      if (its === undefined || its.untilMs <= nowMs) continue;
      const { body, again } = its.request;
      const now = isFirst || again === undefined ? { body, ttlMs: its.untilMs - nowMs } : again();
      if (now !== undefined) left.push({ id, body: now.body, ttlMs: now.ttlMs });
    }
    return left;
  }

  /** It is answered, or nobody waits for it: it is not sent again. */
  over(id: string): void {
    const its = this.#byId.get(id);
    if (its === undefined) return;
    this.#byId.delete(id);
    this.#bytes -= its.request.body.length;
  }

  /** It surely is not held: its requests are as fresh as they were. */
  forget({ ids }: SentBundle): void {
    for (const id of ids) this.over(id);
  }

  #hasRoom(): boolean {
    return this.#byId.size + bundleCallsMax <= rememberedMax && this.#bytes + bundleBytesMax <= rememberedBytesMax;
  }

  #makesRoom(): boolean {
    const nowMs = this.#clock.nowMs();
    if (nowMs < this.#lookedAtMs + lookMs) return false;
    this.#lookedAtMs = nowMs;
    for (const [id, { untilMs }] of this.#byId) if (untilMs <= nowMs) this.over(id);
    return this.#hasRoom();
  }
}

/** Parts what was sent in one turn of the loop into messages. */
export function* parted<Each extends { readonly request: NewRequest }>(all: readonly Each[]): Generator<Each[]> {
  let part: Each[] = [];
  let bytes = 0;
  for (const each of all) {
    if (part.length >= bundleCallsMax || (part.length > 0 && bytes + each.request.body.length > bundleBytesMax)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(each);
    bytes += each.request.body.length;
  }
  if (part.length > 0) yield part;
}
