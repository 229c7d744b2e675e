/** Errors of the log as a whole. They are not in the files of the thread, because the main thread must not load libsql. */
import { HostError } from '../../../kernel/errors.js';

/** A refused call may be sent again after this time, which is longer than the interval in which a full disk is checked for room. */
const retryAfterMs = 1_000;

export const diskFull = (): HostError =>
  new HostError('overloaded', 'the disk of the log of calls is full', {
    ...{ reason: 'disk_full', retryAfterMs, execution: 'not_executed' },
    hint: 'make room on the disk of the host',
  });

/** After a failed write or sync the content of the file is not known, so nothing is written until a restart. */
export const logFailed = (cause: string, execution: 'uncertain' | 'not_executed'): HostError =>
  new HostError(
    execution === 'uncertain' ? 'transport' : 'insufficient_storage',
    `the log of calls failed and writes nothing more: ${cause}`,
    { reason: 'store_failed', execution, hint: 'repair the disk of the host, then restart it: receipts stay valid' },
  );

export const inUse = (pid?: number): HostError =>
  new HostError('invalid_spec', `the log of calls is in use${pid === undefined ? '' : ` by process ${pid}`}`, {
    ...{ field: 'stateDir', reason: 'in_use' },
    hint: 'stop the other host, or give this one a folder of its own',
  });

export const logClosed = (): HostError =>
  new HostError('transport', 'the log of calls is closed', {
    ...{ reason: 'store_closed', execution: 'not_executed' },
    hint: 'the host is stopping; send the call again when it is back',
  });

export const damagedRow = (): HostError =>
  new HostError('outcome_uncertain', 'the recorded outcome of the call is damaged; the call may have run', {
    ...{ reason: 'damaged_row', execution: 'uncertain' },
    hint: 'look at its effect before sending it again, and check the disk of the host',
  });
