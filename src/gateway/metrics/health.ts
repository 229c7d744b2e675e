/**
 * What `/healthz` and `/readyz` answer: whether this process answers at all, and whether clients should be sent to it.
 * Invariant: single servers have no say in it. A host with a broken server is ready: it says of that server what is wrong.
 */
import type { Clock } from '../../kernel/clock.js';

export interface HealthAnswer {
  readonly status: 200 | 503;
  readonly contentType: 'application/json';
  readonly body: string;
}

/** Why clients should wait, or be sent elsewhere. */
type Unready = 'starting' | 'learning' | 'stopping';

/** However long the servers take to say what they offer. */
export const learningMaxMs = 5_000;

const answer = (status: 200 | 503, body: unknown): HealthAnswer => ({
  status,
  contentType: 'application/json',
  body: JSON.stringify(body),
});

const healthy = answer(200, { ok: true });

/** Saying it is all there is to it. */
export const healthz = (): HealthAnswer => healthy;

export class Readiness {
  readonly #clock: Clock;
  #unready: Unready | undefined = 'starting';

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The host is open. `firstSight` resolves when every server was seen once; undefined: there is nothing to wait for. */
  opened(firstSight: Promise<unknown> | undefined): void {
    if (this.#unready !== 'starting') return;
    this.#unready = firstSight && 'learning';
    if (!firstSight) return;
    const learnt = () => {
      cancel();
      if (this.#unready === 'learning') this.#unready = undefined;
    };
    const cancel = this.#clock.at(this.#clock.nowMs() + learningMaxMs, learnt);
    // However it ends, it is over.
    firstSight.then(learnt, learnt);
  }

  /** Nothing new should come. */
  stopping(): void {
    this.#unready = 'stopping';
  }

  readonly readyz = (): HealthAnswer =>
    this.#unready === undefined ? answer(200, { ready: true }) : answer(503, { ready: false, reason: this.#unready });
}
