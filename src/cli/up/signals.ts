/** Stop signals of a process that may run several hosts, one after the other. */
import { EXIT } from '../exit-codes.js';
import { onStopSignals } from '../process/stop-signals.js';

export class Signals {
  /** Called for the first signal. The second ends the process, and the death watch ends the servers. */
  onSignal: (signal: NodeJS.Signals) => void = () => process.exit(EXIT.failed);

  constructor() {
    onStopSignals((signal, isAgain) => {
      if (isAgain) process.exit(EXIT.failed);
      this.onSignal(signal);
    });
  }
}
