/**
 * Notices that a secret in the variables of a running stdio server was rotated. A process keeps the variables of its start, so
 * the server has to restart.
 * Invariant: the restart is requested once, at a moment when the server works on no request.
 */
import type { SecretValues } from '../config/secrets/secret-values.js';
import type { Clock } from '../kernel/clock.js';
import type { Session } from './session.js';

type Texts = Readonly<Record<string, string | null>>;

export interface RotationWatch {
  readonly clock: Clock;
  readonly secrets: Pick<SecretValues, 'resolve'>;
  readonly session: Pick<Session, 'closedBy' | 'isAtWork'>;
  /** Variables with references as configured, and their values at the start. */
  readonly written: Texts;
  readonly started: Texts;
  readonly restart: () => void;
}

const lookMs = 5_000;
/** How often an outdated server is checked for a moment without requests. */
const idleCheckMs = 100;

export function watchRotation(watch: RotationWatch): void {
  const { clock, session, restart } = watch;
  const later = (ms: number, run: () => void) =>
    clock.at(clock.nowMs() + ms, () => {
      if (session.closedBy === undefined) run();
    });
  const restartWhenIdle = (): void => {
    if (session.isAtWork) later(idleCheckMs, restartWhenIdle);
    else restart();
  };
  const look = (): void =>
    void isRotated(watch).then((isOutdated) => {
      if (!isOutdated) later(lookMs, look);
      // The check may take seconds. An operator may have stopped the server meanwhile, or a newer run has the new secret.
      else if (session.closedBy === undefined) restartWhenIdle();
    });
  later(lookMs, look);
}

async function isRotated({ secrets, written, started }: RotationWatch): Promise<boolean> {
  for (const [name, text] of Object.entries(written)) {
    // While a secret cannot be read, for instance during its replacement, the server keeps the old one.
    if (text === null) continue;
    const value = await secrets.resolve(text, name).catch(() => started[name]);
    if (value !== started[name]) return true;
  }
  return false;
}
