import { expect, test } from 'vitest';
import { ClaimLog } from './nats-claim-log.js';

test('what a claim says of calls that are not in the bundle is not remembered', () => {
  const log = new ClaimLog('B', new Date(0), new Set(['a']));
  log.add(0, 7, { boot: 'x', number: '1' }, [
    { key: 'a', hash: 'h' },
    { key: 'b', hash: 'h' },
  ]);
  expect(log.entryOf('a')).toEqual({ slot: 0, seq: 7, size: 2, boot: 'x', number: '1', hash: 'h' });
  expect([log.entryOf('b'), log.slots]).toEqual([undefined, 1]);
});
