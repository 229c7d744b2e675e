/** A worker that sends one call many times: what the host keeps of the sendings is bounded, and no answer is wrong. */
import { expect, test } from 'vitest';
import { gate, ServiceRig, settled } from '../../../test/fakes/service-rig.js';
import { brokerLimits } from '../protocol/limits.js';

const { sendingsPerCall } = brokerLimits;

function sessions() {
  const rig = new ServiceRig({ srv: { tools: ['run'] } });
  const tool = gate<string>();
  rig.host.onCall = () => tool.promise;
  const workers = Array.from({ length: sendingsPerCall }, () => rig.worker());
  return { rig, tool, workers };
}

test('before the row is durable a further sending is refused as `uncertain`', async () => {
  const { rig, tool, workers } = sessions();
  const durable = gate<void>();
  const { receive } = rig.log;
  rig.log.receive = async (call) => {
    await durable.promise;
    return receive.call(rig.log, call);
  };
  for (const worker of workers) await worker.call('k1', 'run');
  const last = rig.worker();
  await last.call('k1', 'run');
  expect(last.refusals.get('k1')).toMatchObject({
    code: 'overloaded',
    details: { reason: 'sendings', limit: sendingsPerCall, execution: 'uncertain' },
  });
  durable.resolve();
  tool.resolve('{"n":1}');
  await settled();
  await settled();
  expect(workers.map((worker) => [worker.answers.get('k1'), worker.outcome('k1')])).toEqual(
    workers.map(() => ['receipt', '{"n":1}']),
  );
  expect(rig.host.calls).toHaveLength(1);
});

test('while the call runs a further sending gets a receipt; the sender of the first one must ask for the outcome', async () => {
  const { rig, tool, workers } = sessions();
  const last = rig.worker();
  for (const worker of [...workers, last]) await worker.call('k1', 'run');
  expect(last.answers.get('k1')).toBe('receipt');
  tool.resolve('{"n":1}');
  await settled();
  const [first] = workers as [typeof last];
  expect([first.outcome('k1'), workers[1]?.outcome('k1'), last.outcome('k1')]).toEqual([
    undefined,
    '{"n":1}',
    '{"n":1}',
  ]);
  await rig.service.ask(first, ['k1']);
  expect(first.outcome('k1')).toBe('{"n":1}');
  expect(rig.host.calls).toHaveLength(1);
});
