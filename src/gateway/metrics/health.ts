/**
 * The answers of `/healthz` (the process runs) and `/readyz` (clients can be served).
 * Invariant: a broken server does not make the host unready, because only calls to that server fail.
 */
import type { Clock } from '../../kernel/clock.js';

export interface HealthAnswer {
  readonly status: 200 | 503;
  readonly contentType: 'application/json';
  readonly body: string;
}

type Unready = 'starting' | 'learning' | 'stopping';

/** Maximum time that readiness waits for the first listings. */
const learningMaxMs = 5_000;

const answer = (status: 200 | 503, body: unknown): HealthAnswer => ({
  status,
  contentType: 'application/json',
  body: JSON.stringify(body),
});

const healthy = answer(200, { ok: true });

export const healthz = (): HealthAnswer => healthy;

export class Readiness {
  readonly #clock: Clock;
  #unready: Unready | undefined = 'starting';

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `startupListing` resolves when all first listings have settled, failed ones included; undefined: no listing is pending. */
  opened(startupListing: Promise<unknown> | undefined): void {
    if (this.#unready !== 'starting') return;
    this.#unready = startupListing && 'learning';
    if (!startupListing) return;
    const learnt = () => {
      cancel();
      if (this.#unready === 'learning') this.#unready = undefined;
    };
    const cancel = this.#clock.at(this.#clock.nowMs() + learningMaxMs, learnt);
    startupListing.then(learnt, learnt);
  }

  stopping(): void {
    this.#unready = 'stopping';
  }

  readonly readyz = (): HealthAnswer =>
    this.#unready === undefined ? answer(200, { ready: true }) : answer(503, { ready: false, reason: this.#unready });
}
