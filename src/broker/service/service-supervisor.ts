/**
 * Keeps the service at a link: opens one, serves until it is over, waits, and opens the next, until it is told to stop.
 * Not here: what is served (broker-service.ts), how a link is opened (an engine).
 *
 * Invariants: being told to stop comes before everything else, and nothing is opened after it; a link counts as healthy by the
 * time it was subscribed, not by the time it took to fail; who is refused does not knock every half minute.
 */

import { backoffMs } from '../../kernel/backoff.js';
import { Cancellation } from '../../kernel/cancel-signal.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { type Random, systemRandom } from '../../kernel/random.js';
import type { HostHandlers, HostLink, OpenHostLink } from '../ports.js';

export interface Served extends HostHandlers {
  attach(link: HostLink): void;
  detach(error: HostError | undefined, retryInMs: number): void;
}

export interface SuperviseOptions {
  readonly open: OpenHostLink;
  readonly service: Served;
  readonly clock: Clock;
  readonly random?: Random;
  readonly backoff?: { readonly minMs: number; readonly maxMs: number };
  readonly healthyMs?: number;
}

const backoffDefault = { minMs: 500, maxMs: 30_000 };
const healthyDefaultMs = 10_000;
/** A key that does not count will not count in half a minute; a person has to do something. */
const refusedMs = 5 * 60_000;
const connectMs = 30_000;

export interface Supervision {
  /** Resolves when nothing is open any more. */
  stop(): Promise<void>;
}

export function supervise(options: SuperviseOptions): Supervision {
  const stopping = new Cancellation();
  const ended = keepServing(options, stopping);
  return {
    stop: () => {
      stopping.abort();
      return ended;
    },
  };
}

async function keepServing(options: SuperviseOptions, stopping: Cancellation): Promise<void> {
  const { clock, service, random = systemRandom } = options;
  const { backoff = backoffDefault, healthyMs = healthyDefaultMs } = options;
  let failures = 0;
  while (!stopping.aborted) {
    const { error, subscribedMs } = await serveOnce(options, stopping);
    if (stopping.aborted) return service.detach(error, 0);
    if (subscribedMs >= healthyMs) failures = 0;
    const isRefused = error?.code === 'unauthenticated' || error?.code === 'denied';
    const atMostMs = isRefused ? refusedMs : backoffMs(backoff.minMs, failures++, backoff.maxMs);
    // Hosts that lost the same broker do not all come back at once.
    const waitMs = atMostMs * (0.5 + random() / 2);
    service.detach(error, waitMs);
    await sleep(clock, waitMs, stopping);
  }
}

interface Serving {
  readonly error: HostError | undefined;
  readonly subscribedMs: number;
}

async function serveOnce({ open, service, clock }: SuperviseOptions, stopping: Cancellation): Promise<Serving> {
  const connecting = new Cancellation();
  const give = () => connecting.abort();
  const cancelLimit = clock.at(clock.nowMs() + connectMs, give);
  stopping.addEventListener('abort', give);
  let link: HostLink;
  try {
    link = await open(service, connecting);
  } catch (error) {
    return { error: asHostError(error), subscribedMs: 0 };
  } finally {
    cancelLimit();
    stopping.removeEventListener('abort', give);
  }
  const sinceMs = clock.nowMs();
  const close = () => void link.close();
  if (stopping.aborted) close();
  stopping.addEventListener('abort', close);
  try {
    service.attach(link);
    return { error: await link.closed, subscribedMs: clock.nowMs() - sinceMs };
  } catch (error) {
    return { error: asHostError(error), subscribedMs: clock.nowMs() - sinceMs };
  } finally {
    stopping.removeEventListener('abort', close);
  }
}

const asHostError = (error: unknown): HostError =>
  isHostError(error)
    ? error
    : new HostError('transport', 'the link to the broker failed', { execution: 'not_executed', cause: error });
