/** Calls that were sent before and find no room: their rows are read. The number and the bytes of calls whose rows are read are bounded. */
import { expect, test } from 'vitest';
import { gate, ServiceRig, settled } from '../../../test/fakes/service-rig.js';
import { HostError } from '../../kernel/errors.js';
import type { CallRow } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';

const { callsPerWorker, requestBytesPerWorker } = brokerLimits;

function fullLog() {
  const rig = new ServiceRig({ srv: { tools: ['run'] } });
  const found = gate<CallRow | undefined>();
  rig.log.refusal = () => new HostError('overloaded', 'the log is full', { execution: 'not_executed' });
  rig.log.find = () => found.promise;
  const sentBefore = { storeId: rig.log.storeId, hasReceipt: true };
  return { rig, found, sentBefore, worker: rig.worker() };
}

test.each([
  ['calls', callsPerWorker, '{}'],
  ['bytes', 16, { text: 'x'.repeat(requestBytesPerWorker / 16 - '{"text":""}'.length) }],
])('past the bound of %s, a call is refused as `uncertain`, and its row is not read', async (_, count, args) => {
  const { rig, found, sentBefore, worker } = fullLog();
  for (let n = 0; n <= count; n++) await worker.call(`k${n}`, 'run', args, { sentBefore });
  expect([...worker.refusals.keys()]).toEqual([`k${count}`]);
  expect(worker.refusals.get(`k${count}`)).toMatchObject({ code: 'overloaded', details: { execution: 'uncertain' } });
  const other = rig.worker('w2');
  await other.call('k', 'run', args, { sentBefore });
  expect(other.answers.size).toBe(0);
  found.resolve(undefined);
  await settled();
  expect([worker.refusals.size, other.refusals.size]).toEqual([count + 1, 1]);
  await worker.call('later', 'run', args, { sentBefore });
  expect(worker.refusals.get('later')).toMatchObject({ details: { execution: 'not_executed' } });
});
