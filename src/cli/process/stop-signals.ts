/**
 * Signals that stop a long-running command: the first starts an orderly stop, the second ends the process.
 * Below a reaper (subreaper.ts) a signal to the process group arrives twice: directly, and forwarded as SIGUSR2. Direct and
 * forwarded signals are counted separately, so that one signal to the group does not count as two.
 */
import { EXIT } from '../exit-codes.js';
import { REAPER_VARIABLE } from './subreaper.js';

const directSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export type StopCount = 'first' | 'again' | 'same';

/** `same`: the other copy of a signal that was already counted. */
export function stopCounter(): (isForwarded: boolean) => StopCount {
  let direct = 0;
  let forwarded = 0;
  return (isForwarded) => {
    if (isForwarded) forwarded++;
    else direct++;
    if (direct + forwarded === 1) return 'first';
    return (isForwarded ? forwarded : direct) > 1 ? 'again' : 'same';
  };
}

export function onStopSignals(onStop: (signal: NodeJS.Signals, isAgain: boolean) => void): void {
  const count = stopCounter();
  const onSignal = (signal: NodeJS.Signals, isForwarded: boolean) => {
    const counted = count(isForwarded);
    if (counted !== 'same') onStop(signal, counted === 'again');
  };
  for (const signal of directSignals) process.on(signal, () => onSignal(signal, false));
  if (process.env[REAPER_VARIABLE] !== undefined) process.on('SIGUSR2', () => onSignal('SIGTERM', true));
}

export function onStopSignal(stop: () => void): void {
  onStopSignals((_signal, isAgain) => {
    if (isAgain) process.exit(EXIT.failed);
    stop();
  });
}
