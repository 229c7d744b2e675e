/**
 * Asks for the manifest over one connection until it is known, and again when it has changed.
 * Not here: what becomes of the manifest (connection-keeper.ts).
 *
 * Invariants: one question at a time; a failed question is repeated only while the manifest is wanted, with backoff up to 2 s; after
 * `end` nothing is asked.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import { type Manifest, readManifestBody } from '../protocol/reply-body.js';
import { reconnectDelayMs } from './reconnect-plan.js';

/** Time between two questions if changes follow each other. */
const paceMs = 250;
/** Calls of unknown tools do not ask more often than this. */
const freshMs = 5_000;

export interface LearnerParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly ask: () => Promise<Buffer>;
  readonly learned: (manifest: Manifest, body: Buffer) => void;
  readonly failed: (error: unknown) => void;
}

export class ManifestLearner {
  #asking: Promise<void> | undefined;
  #cancelNext: Cancel | undefined;
  #isWanted = false;
  #isOver = false;
  #failures = 0;
  #endedAtMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly parts: LearnerParts) {}

  /** Asks until a question that begins from now on is answered. */
  want(): void {
    this.#isWanted = true;
    if (this.#asking === undefined && !this.#cancelNext) void this.#ask();
  }

  /**
   * For a call of a tool that the manifest does not have: asks once, or joins a question in flight, and resolves when it is answered. Resolves
   * at once if a question ended less than 5 s ago. Never rejects.
   */
  look(): Promise<void> {
    if (this.#asking !== undefined) return this.#asking;
    if (this.#isOver || this.parts.clock.nowMs() - this.#endedAtMs < freshMs) return Promise.resolve();
    return this.#ask();
  }

  end(): void {
    this.#isOver = true;
    this.#cancelNext?.();
    this.#cancelNext = undefined;
  }

  #ask(): Promise<void> {
    const { ask, learned, failed } = this.parts;
    const wasWanted = this.#isWanted;
    this.#isWanted = false;
    this.#cancelNext?.();
    this.#cancelNext = undefined;
    const read = ask().then((body) => ({ body, manifest: readManifestBody(body) }));
    this.#asking = read.then(
      ({ manifest, body }) => {
        this.#failures = 0;
        this.#ended(() => learned(manifest, body));
      },
      (error) => {
        this.#failures++;
        this.#isWanted ||= wasWanted;
        this.#ended(() => failed(error));
      },
    );
    return this.#asking;
  }

  #ended(report: () => void): void {
    const { clock, random } = this.parts;
    this.#asking = undefined;
    this.#endedAtMs = clock.nowMs();
    if (this.#isOver) return;
    if (this.#isWanted) {
      const delayMs = this.#failures === 0 ? paceMs : reconnectDelayMs(this.#failures, random);
      this.#cancelNext = clock.at(clock.nowMs() + delayMs, () => void this.#ask());
    }
    report();
  }
}
