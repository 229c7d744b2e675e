/**
 * How full the buckets and the stream of bodies are, and why a new call finds no room in them. The server itself refuses what does not fit.
 * Not here: bounds per worker (known-calls.ts).
 */
import type { StreamInfo } from '@nats-io/jetstream';
import type { Clock } from '../../kernel/clock.js';
import { type HostError, notExecuted } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import { storeBytes } from './create-stores.js';
import { bodiesStream, callsBucket, keysBucket, streamOf } from './names.js';

const askMs = 2_000;
/** Room for the outcomes of calls that run when the bucket of calls is full. */
const reservedBytes = 16 * 1024 * 1024;
/** If the store gave room back this recently, it is expected to do so again soon; if not, only when its oldest entry expires. */
const freedMs = 5_000;
const soonMs = 1_000;

class StoreSize {
  bytes = 0;
  rows = 0;
  /** When the oldest entry is removed by its age, at the latest. */
  expiresAtMs = 0;
  freedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    readonly stream: string,
    readonly content: string,
    readonly isForKeys: boolean,
    /** Above this no new call is accepted. */
    readonly bytesMax: number,
  ) {}
}

export class StoreSizes {
  readonly #keys = new StoreSize(
    ...([streamOf(keysBucket), 'keys that callers chose', true, brokerLimits.callersKeyBytes - 1] as const),
  );
  readonly #all = [
    new StoreSize(streamOf(callsBucket), 'calls', false, storeBytes - reservedBytes),
    // The rest is for replies of calls that run. One worker has at most 64 MiB at each host.
    new StoreSize(bodiesStream, 'replies of calls', false, storeBytes - 3 * reservedBytes),
    this.#keys,
  ];
  #askedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly clock: Clock,
    private readonly info: (stream: string) => Promise<StreamInfo & { readonly ts?: string }>,
  ) {
    this.#measure();
  }

  get callersKeys(): number {
    this.#measure();
    return this.#keys.rows;
  }

  refusal(isCallersKey: boolean): HostError | undefined {
    this.#measure();
    if (isCallersKey && this.#keys.rows >= brokerLimits.callersKeys) return this.full(this.#keys.stream);
    const full = this.#all.find(({ isForKeys, bytes, bytesMax }) => isForKeys === isCallersKey && bytes > bytesMax);
    return full && this.full(full.stream);
  }

  full(stream: string): HostError {
    const { content, expiresAtMs, freedAtMs } = this.#all.find((each) => each.stream === stream) ?? this.#keys;
    const nowMs = this.clock.nowMs();
    const retryAfterMs = nowMs - freedAtMs < freedMs ? soonMs : Math.max(soonMs, expiresAtMs - nowMs);
    const hint = 'room comes back as earlier calls expire';
    const facts = { reason: 'bucket_full', retryAfterMs };
    return notExecuted('insufficient_storage', `the NATS server has no room for ${content}`, hint, facts);
  }

  /** Asks for the sizes, at most every two seconds and only while the log is used. Without an answer the last sizes are used. */
  #measure(): void {
    const nowMs = this.clock.nowMs();
    if (nowMs - this.#askedAtMs < askMs) return;
    this.#askedAtMs = nowMs;
    for (const size of this.#all) void this.#look(size, nowMs).catch(() => {});
  }

  async #look(size: StoreSize, nowMs: number): Promise<void> {
    const { state, config, ts } = await this.info(size.stream);
    // All times are those of the server. Before 2.10 its answer has no time; then the time of the last entry is used, which is earlier.
    const ageMs = Date.parse(ts ?? state.last_ts) - Date.parse(state.first_ts);
    if (state.bytes < size.bytes) size.freedAtMs = nowMs;
    Object.assign(size, {
      bytes: state.bytes,
      rows: state.messages,
      expiresAtMs: nowMs + config.max_age / 1e6 - ageMs,
    });
  }
}
