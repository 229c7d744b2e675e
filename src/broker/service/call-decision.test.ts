import { describe, expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import type { CallRow } from '../calls/call-log.js';
import { decideKnown, decideUnknown, type Sending } from './call-decision.js';

const denied = new HostError('denied', 'no');
const plain: Sending = {
  ...{ digest: 'd', isCallersKey: false, sentBefore: undefined, isRepeatable: false, refusal: undefined },
};
const here = { storeId: 'here', hasReceipt: false };
const elsewhere = { storeId: 'elsewhere', hasReceipt: false };
const doubt = { sentBefore: elsewhere, isRepeatable: true };
const withReceipt = { storeId: 'here', hasReceipt: true };

describe('a key that the log does not know', () => {
  test.each<[string, Partial<Sending>, boolean, string]>([
    ['is begun', {}, true, 'running'],
    ['waits when the limit of its worker is reached', {}, false, 'received'],
    ['that a caller chose is begun', { isCallersKey: true }, true, 'running'],
    ['is begun when it was sent here before without a receipt', { sentBefore: here }, true, 'running'],
    ['is uncertain when another store may have begun it', { sentBefore: elsewhere }, true, 'uncertain'],
    ['is uncertain when this store has lost it', { sentBefore: withReceipt }, true, 'uncertain'],
    ['is begun again when its tool may be repeated', { sentBefore: elsewhere, isRepeatable: true }, true, 'running'],
    ['is begun again after a receipt too', { sentBefore: withReceipt, isRepeatable: true }, false, 'received'],
    ['is recorded as refused when it was sent before', { refusal: denied, sentBefore: here }, true, 'refused'],
    ['is recorded as refused when a caller chose it', { refusal: denied, isCallersKey: true }, true, 'refused'],
    [
      'is uncertain when its tool may be repeated but the call is refused',
      { ...doubt, refusal: denied },
      true,
      'uncertain',
    ],
    [
      'is uncertain, not refused, when another store may have begun it',
      { refusal: denied, sentBefore: elsewhere },
      true,
      'uncertain',
    ],
  ])('%s', (_name, sending, canBegin, state) => {
    expect(decideUnknown({ ...plain, ...sending }, 'here', canBegin)).toBe(state);
  });
});

describe('a key that the log knows', () => {
  const row = (state: CallRow['state'], more: Partial<CallRow> = {}): CallRow => ({
    ...{ state, owner: 'o', digest: 'd', attempts: state === 'received' ? 0 : 1, version: 1, reply: undefined },
    ...more,
  });
  const repeatable = { isRepeatable: true };

  test.each<[string, CallRow, Partial<Sending>, 'gone' | 'elsewhere', string]>([
    ['with other arguments is a conflict', row('done'), { digest: 'x' }, 'gone', 'conflict'],
    ['with other arguments is a conflict while it runs', row('running'), { digest: 'x' }, 'elsewhere', 'conflict'],
    ['is answered from the log', row('done'), {}, 'gone', 'reply'],
    ['is answered from the log when it was uncertain', row('uncertain'), repeatable, 'gone', 'reply'],
    [
      'is answered from the log when the caller may not call any more',
      row('done'),
      { refusal: denied },
      'gone',
      'reply',
    ],
    ['is left to the host that has it', row('received'), {}, 'elsewhere', 'elsewhere'],
    ['is left to the host that runs it', row('running'), repeatable, 'elsewhere', 'elsewhere'],
    ['is begun when its host ended before it began', row('received'), {}, 'gone', 'begin'],
    ['is uncertain when its host ended while it ran', row('running'), {}, 'gone', 'uncertain'],
    ['is begun again when its tool may be repeated', row('running'), repeatable, 'gone', 'begin'],
    ['is begun a third time', row('running', { attempts: 2 }), repeatable, 'gone', 'begin'],
    ['B10: is uncertain after three runs', row('running', { attempts: 3 }), repeatable, 'gone', 'uncertain'],
    [
      'is claimed in order to be refused when it did not begin and must not run',
      row('received'),
      { refusal: denied },
      'gone',
      'begin',
    ],
    [
      'is uncertain when it may have run and must not run again',
      row('running'),
      { ...repeatable, refusal: denied },
      'gone',
      'uncertain',
    ],
  ])('%s', (_name, known, sending, ownership, decision) => {
    expect(decideKnown(known, { ...plain, ...sending }, ownership)).toBe(decision);
  });
});
