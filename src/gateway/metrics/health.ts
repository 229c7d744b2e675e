/**
 * The answers of `/healthz` and `/readyz`: whether the process answers at all, and whether it is ready for clients.
 * Invariant: a single server does not count. A host with a broken server is ready: calls to that server fail with the reason.
 */
import type { Clock } from '../../kernel/clock.js';

export interface HealthAnswer {
  readonly status: 200 | 503;
  readonly contentType: 'application/json';
  readonly body: string;
}

/** Why the process is not ready for clients. */
type Unready = 'starting' | 'learning' | 'stopping';

/** Readiness does not wait longer for servers to list their tools. */
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

  /** The host is open. `startupListing` resolves when every server was ready once; undefined: there is nothing to wait for. */
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

  /** The process is shutting down. */
  stopping(): void {
    this.#unready = 'stopping';
  }

  readonly readyz = (): HealthAnswer =>
    this.#unready === undefined ? answer(200, { ready: true }) : answer(503, { ready: false, reason: this.#unready });
}
