/** The errors of calls that may have run, if this host cannot read their rows. */
import { describe, expect, test } from 'vitest';
import { RunnerRig, settle } from '../../../test/fakes/runner-rig.js';
import { HostError } from '../../kernel/errors.js';

describe("no error says `not_executed` for a caller's key when its row", () => {
  const isCallersKey = true;
  const lost = () => Promise.reject(new HostError('insufficient_storage', 'disk', { execution: 'not_executed' }));

  test('cannot be read', async () => {
    const rig = new RunnerRig();
    rig.log.receive = lost;
    const heard = rig.send('k1', { isCallersKey });
    await settle();
    expect(heard.all).toEqual(['refused insufficient_storage uncertain']);
  });

  test('cannot be read, and the log is full', async () => {
    const rig = new RunnerRig();
    rig.log.refusal = () => new HostError('overloaded', 'full', { execution: 'not_executed' });
    rig.log.find = lost;
    const heard = rig.send('k1', { isCallersKey });
    await settle();
    expect(heard.all).toEqual(['refused insufficient_storage uncertain']);
  });

  test('was begun, and there is no room to begin it again', async () => {
    const rig = new RunnerRig();
    rig.isRepeatable = true;
    rig.send('k1', { isCallersKey });
    await settle();
    await rig.restart();
    rig.log.refusal = () => new HostError('overloaded', 'full', { execution: 'not_executed' });
    const heard = rig.send('k1', { isCallersKey });
    await settle();
    expect(heard.all).toEqual(['refused overloaded uncertain']);
    expect(rig.executed).toHaveLength(1);
  });

  test('was removed meanwhile', async () => {
    const rig = new RunnerRig();
    rig.send('k1', { isCallersKey });
    await settle();
    await rig.restart();
    rig.log.finish = async () => undefined;
    const heard = rig.send('k1', { isCallersKey });
    await settle();
    expect(heard.all).toEqual(['refused overloaded uncertain']);
  });
});

test('no error says `not_executed` for a call whose earlier host was only cut off, and begins the call after all', async () => {
  const rig = new RunnerRig();
  rig.limit(1, 10);
  rig.send('first');
  rig.send();
  await settle();
  const { log: cutOff } = rig;
  const waiting = await rig.row();
  await rig.restart();
  rig.refusal = new HostError('denied', 'no');
  rig.log.isGone = async () => {
    await cutOff.begin({ worker: 'w1', epoch: 'e1', key: 'k1' }, waiting?.version ?? 0);
    return true;
  };
  const again = rig.send('k1', { sentBefore: { storeId: 'store', hasReceipt: true } });
  await settle();
  expect(again.all).toEqual(['receipt me', 'error outcome_uncertain host_lost']);
});

test.each<[string, (rig: RunnerRig) => void]>([
  ['the log is full', (rig) => (rig.log.refusal = () => new HostError('overloaded', 'full'))],
  ['another call has the only slot', (rig) => rig.send('second')],
])(
  'a call that is denied before its begin, and allowed after it, does not run without a slot when %s',
  async (_name, fill) => {
    const rig = new RunnerRig();
    rig.limit(1, 10);
    rig.send('first');
    rig.send();
    await settle();
    expect(await rig.row()).toMatchObject({ state: 'received' });
    await rig.restart();
    rig.limit(1, 10);
    fill(rig);
    const { begin } = rig.log;
    rig.log.begin = async (id, version) => {
      const begun = await begin.call(rig.log, id, version);
      rig.refusal = undefined;
      return begun;
    };
    await settle();
    const { length: before } = rig.executed;
    rig.refusal = new HostError('denied', 'no', { reason: 'allowlist' });
    const again = rig.send('k1', { sentBefore: { storeId: 'store', hasReceipt: true } });
    await settle();
    expect(rig.executed).toHaveLength(before);
    expect(again.all).toEqual(['receipt me', 'error denied allowlist']);
  },
);

test('no error says `not_executed` for a call that waited here and that another store may have begun before', async () => {
  const rig = new RunnerRig();
  rig.limit(1, 10);
  rig.isRepeatable = true;
  const sentBefore = { storeId: 'another', hasReceipt: true };
  rig.send('first');
  rig.send('k1', { sentBefore });
  await settle();
  expect(await rig.row()).toMatchObject({ state: 'received' });
  await rig.restart();
  rig.refusal = new HostError('denied', 'no');
  const again = rig.send('k1', { sentBefore });
  await settle();
  expect(again.all).toEqual(['receipt me', 'error outcome_uncertain host_lost']);
});
