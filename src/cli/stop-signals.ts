/** The signals by which a command that goes on is told to stop: the first lets it finish, the second ends the process. */
import { EXIT } from './exit-codes.js';

export const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export function onStopSignal(stop: () => void): void {
  let isStopping = false;
  const onSignal = () => {
    if (isStopping) process.exit(EXIT.failed);
    isStopping = true;
    stop();
  };
  for (const signal of stopSignals) process.on(signal, onSignal);
}
