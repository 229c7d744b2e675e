/**
 * Keeps asking over one link until the manifest is known, and again when there is a new one.
 * Not here: the question itself (manifest-asks.ts), what becomes of the answer (link-keeper.ts).
 *
 * Invariants: one question at a time, however many want to know; a failure is tried again only where somebody still wants it,
 * later and later up to 2 s; after `end` nothing is asked.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import type { Manifest } from '../messages.js';
import { reconnectDelayMs } from './reconnect-plan.js';

/** Changes that come in a row are learned at this pace. */
const paceMs = 250;
/** A tool that nobody knows is no reason to ask more often than this. */
const freshMs = 5_000;

export interface LearnerParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly ask: () => Promise<Manifest>;
  readonly learned: (manifest: Manifest) => void;
  readonly failed: (error: unknown) => void;
}

export class ManifestLearner {
  readonly #parts: LearnerParts;
  #asking: Promise<void> | undefined;
  #cancelNext: Cancel | undefined;
  #isWanted = false;
  #isOver = false;
  #failures = 0;
  #endedAtMs = Number.NEGATIVE_INFINITY;

  constructor(parts: LearnerParts) {
    this.#parts = parts;
  }

  /** Until it is learned once from now on. */
  want(): void {
    this.#isWanted = true;
    if (this.#asking === undefined && !this.#cancelNext) void this.#ask();
  }

  /** Resolves after one question, shared with others, or at once when one was answered lately. Never rejects. */
  look(): Promise<void> {
    if (this.#asking !== undefined) return this.#asking;
    if (this.#isOver || this.#parts.clock.nowMs() - this.#endedAtMs < freshMs) return Promise.resolve();
    return this.#ask();
  }

  end(): void {
    this.#isOver = true;
    this.#cancelNext?.();
    this.#cancelNext = undefined;
  }

  #ask(): Promise<void> {
    const { ask } = this.#parts;
    const wasWanted = this.#isWanted;
    this.#isWanted = false;
    this.#cancelNext?.();
    this.#cancelNext = undefined;
    this.#asking = ask().then(
      (manifest) => {
        this.#failures = 0;
        this.#ended(() => this.#parts.learned(manifest));
      },
      (error) => {
        this.#failures++;
        this.#isWanted ||= wasWanted;
        this.#ended(() => this.#parts.failed(error));
      },
    );
    return this.#asking;
  }

  #ended(tell: () => void): void {
    const { clock, random } = this.#parts;
    this.#asking = undefined;
    this.#endedAtMs = clock.nowMs();
    if (this.#isOver) return;
    if (this.#isWanted) {
      const delayMs = this.#failures === 0 ? paceMs : reconnectDelayMs(this.#failures, random);
      this.#cancelNext = clock.at(clock.nowMs() + delayMs, () => void this.#ask());
    }
    tell();
  }
}
