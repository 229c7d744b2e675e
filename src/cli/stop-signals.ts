/**
 * The signals that stop a command which keeps running: the first lets it finish, the second ends the process.
 * Below a reaper (reaper-script.ts) a signal to the whole process group arrives twice: directly, and handed on as SIGUSR2. The two
 * ways are counted apart, so that one signal to the group is not taken for two.
 */
import { EXIT } from './exit-codes.js';
import { REAPER_VARIABLE } from './reaper-script.js';

const directSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export type StopCount = 'first' | 'again' | 'same';

/** What a stop signal means after the ones before it. `isForwarded`: it came from a reaper. */
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

/** `isAgain`: a stop was asked for before. */
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
