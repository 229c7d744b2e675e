/**
 * Asks for the manifest over one connection until it is known, and again when it has changed.
 * Not here: what becomes of the manifest (connection-keeper.ts).
 *
 * Invariants: one question at a time; a failed question is repeated only while the manifest is wanted, with backoff up to 2 s; after
 * `end` nothing is asked.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type Deferred, deferred } from '../../kernel/deferred.js';
import { HostError } from '../../kernel/errors.js';
import { newId, type Random } from '../../kernel/random.js';
import { type Manifest, readManifestBody } from '../protocol/reply-body.js';
import type { WorkerConnection } from './connection.js';
import { reconnectDelayMs } from './reconnect-plan.js';

/** Time between two questions if changes follow each other. */
const paceMs = 250;
/** A call of an unknown tool asks for no manifest within this time after the last answer. */
const freshMs = 5_000;

export interface LearnerParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly connection: Pick<WorkerConnection, 'send' | 'answerMs'>;
  readonly learned: (manifest: Manifest, body: Buffer) => void;
  readonly failed: (error: unknown) => void;
}

export class ManifestLearner {
  /** The question without an answer. */
  #question: { readonly id: string; readonly isWanted: boolean; readonly over: Deferred } | undefined;
  /** The end of the question, or the next one. */
  #cancelTimer: Cancel | undefined;
  #isWanted = false;
  #isOver = false;
  #failures = 0;
  #endedAtMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly parts: LearnerParts) {}

  /** Asks for the manifest until a question that began after this call is answered. */
  want(): void {
    this.#isWanted = true;
    if (!this.#cancelTimer) this.#ask();
  }

  /**
   * For a call of a tool that the manifest does not have: asks once, or joins a question in flight, and resolves when it is answered. Resolves
   * at once if a question ended less than 5 s ago. Never rejects.
   */
  async look(): Promise<void> {
    const isFresh = this.parts.clock.nowMs() - this.#endedAtMs < freshMs;
    if (!this.#question && !isFresh) this.#ask();
    await this.#question?.over.promise;
  }

  heard(id: string, body: Buffer): void {
    if (id !== this.#question?.id) return;
    let manifest: Manifest;
    try {
      manifest = readManifestBody(body);
    } catch (error) {
      return this.fail(error);
    }
    this.#failures = 0;
    this.#ended();
    this.parts.learned(manifest, body);
  }

  /** Call it when the question will get no answer. */
  fail(error: unknown): void {
    if (!this.#question) return;
    this.#failures++;
    this.#isWanted ||= this.#question.isWanted;
    this.#ended();
    this.parts.failed(error);
  }

  end(): void {
    this.#isOver = true;
    this.#cancelTimer?.();
    this.#question?.over.resolve();
    this.#question = undefined;
  }

  #ask(): void {
    if (this.#isOver) return;
    const { connection } = this.parts;
    const id = newId();
    this.#question = { id, isWanted: this.#isWanted, over: deferred() };
    this.#isWanted = false;
    this.#setTimer(connection.answerMs, () => this.fail(noAnswer(connection.answerMs)));
    connection.send({ op: 'manifest', id });
  }

  #ended(): void {
    this.#question?.over.resolve();
    this.#question = undefined;
    this.#endedAtMs = this.parts.clock.nowMs();
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const delayMs = this.#failures === 0 ? paceMs : reconnectDelayMs(this.#failures, this.parts.random);
    if (this.#isWanted) this.#setTimer(delayMs, () => this.#ask());
  }

  #setTimer(delayMs: number, run: () => void): void {
    const { clock } = this.parts;
    this.#cancelTimer?.();
    this.#cancelTimer = clock.at(clock.nowMs() + delayMs, run);
  }
}

const noAnswer = (afterMs: number): HostError =>
  new HostError('transport', `no host answered within ${afterMs / 1_000} s`, {
    ...{ reason: 'no_answer', execution: 'uncertain', hint: 'the worker sends it again by itself' },
  });
