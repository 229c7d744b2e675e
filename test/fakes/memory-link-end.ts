/** The end of a link within one process (memory-broker.ts): told once, to whoever has the link and to whoever waits for a receipt. */
import { HostError, type HostErrorOptions } from '../../src/kernel/errors.js';

/** Who hears of the end of a link, once. */
export class End {
  readonly closed: Promise<HostError | undefined>;
  isOver = false;
  isSilent = false;
  readonly #waiting = new Set<(error: HostError) => void>();
  #resolve: (error: HostError | undefined) => void = () => {};

  constructor() {
    this.closed = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  over(error: HostError | undefined): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const reject of this.#waiting) reject(lost('the link was lost before the receipt came', 'uncertain'));
    this.#waiting.clear();
    this.#resolve(error);
  }

  /** A promise that the end of the link rejects. */
  until(run: (resolve: () => void, reject: (error: HostError) => void) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      run(() => {
        this.#waiting.delete(reject);
        resolve();
      }, reject);
    });
  }
}

export const lost = (message: string, execution: HostErrorOptions['execution']): HostError =>
  new HostError('transport', message, execution && { execution });
