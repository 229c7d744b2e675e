/** Who gave a request back, or ended it, does not refuse it any more: it may be in other hands, and run there. */
import { HostError } from '../kernel/errors.js';

export const notOwed = (): HostError =>
  new HostError('transport', 'the request is not held here any more', {
    reason: 'not_owed',
    execution: 'uncertain',
    hint: 'it comes again to whoever has the mailbox, if it is not over',
  });
