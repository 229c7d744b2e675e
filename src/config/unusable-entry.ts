/** Stands in the place of an entry that cannot be used, and says why: the entry was written, and its name is taken. */
import type { HostError } from '../kernel/errors.js';

export class UnusableEntry {
  readonly error: HostError;

  constructor(error: HostError) {
    this.error = error;
  }
}
