import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { gate, ServiceRig, settled } from '../../../test/fakes/service-rig.js';
import { HostError } from '../../kernel/errors.js';
import type { WorkerMessage } from '../protocol/messages.js';
import type { WorkerSession } from './transport.js';

const three = { nova: { tools: ['fetch_url', 'nova_click', 'nova_screenshot'] } };

test('questions of one worker are answered one after the other: replies that are read may have 4 MiB each', async () => {
  const rig = new ServiceRig(three);
  const { find } = rig.log;
  let [reading, most] = [0, 0];
  rig.log.find = async (id) => {
    most = Math.max(most, ++reading);
    await settled();
    reading--;
    return find.call(rig.log, id);
  };
  const keys = Array.from({ length: 32 }, (_, at) => `k${at % 16}`);
  const worker = rig.worker();
  const asked = await Promise.all(Array.from({ length: 200 }, () => rig.service.ask(worker, keys)));
  expect(most).toBe(8);
  expect(asked[0]).toEqual({ running: [], resend: keys.slice(0, 16) });
  // The worker asks again.
  expect(asked.at(-1)).toEqual({ running: keys, resend: [] });
});

describe('a worker that is revoked', () => {
  test('AC-BR12 has its waiting calls removed and its running ones cancelled, and is sent nothing more', async () => {
    const rig = new ServiceRig(three, { runningPerWorker: 1 });
    rig.host.onCall = ({ options }) =>
      new Promise((_resolve, reject) => {
        options.signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'cancelled')));
      });
    const worker = rig.worker();
    await worker.call('runs', 'nova_click');
    await worker.call('waits', 'nova_click');
    worker.now = undefined;
    await rig.service.workerRevoked('w1');
    await settled();
    expect(rig.host.calls).toHaveLength(1);
    expect(worker.heard).toEqual([]);
    expect(await rig.log.find({ worker: 'w1', epoch: 'e1', key: 'waits' })).toBeUndefined();
    const again = { session: 's1', digest: '', isCallersKey: false, deadlineMs: 1_000, state: 'running' } as const;
    expect(await rig.log.receive({ ...again, id: { worker: 'w1', epoch: 'e1', key: 'runs' } })).toMatchObject({
      ...{ isNew: false, row: { state: 'done', reply: undefined } },
    });
    await worker.call('late', 'nova_click');
    expect(worker.refusals.get('late')).toMatchObject({ code: 'denied', details: { reason: 'revoked' } });
    expect(rig.service.status()).toMatchObject({ running: 0, waiting: 0 });
  });

  test('AC-BR12 gives nothing to the next worker of its name', async () => {
    const rig = new ServiceRig(three);
    const before = rig.worker('w1', 'r1', 's1', 'e1');
    rig.host.onCall = () => '{"secret":1}';
    before.isReading = false;
    await before.call('k1', 'nova_click');
    const after = rig.worker('w1', 'r1', 's2', 'e2');
    before.now = after.now;
    await rig.service.workerRevoked('w1', ['e2']);
    expect(await rig.service.ask(after, ['k1'])).toEqual({ running: [], resend: ['k1'] });
    await before.call('k2', 'nova_click');
    expect(before.answers.get('k2')).toBe('denied');
    await after.call('k1', 'nova_click', {}, { sentBefore: { storeId: rig.log.storeId, hasReceipt: true } });
    expect(after.outcome('k1')).toMatchObject({ code: 'outcome_uncertain' });
  });
});

test('D-44 a session that joins a call of another does not keep the arguments of its own sending', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const rig = new ServiceRig(three);
  rig.host.onCall = () => new Promise(() => {});
  const answers: string[] = [];
  const send = (session: WorkerSession) => {
    const args = Buffer.from(`{"large":"${'x'.repeat(100_000)}"}`);
    const message = {
      op: 'call',
      key: 'k1',
      tool: 'nova_click',
      args,
      deadlineMs: 10_000,
      isCallersKey: true,
    } as const;
    const { send: answer } = session;
    session.send = (said) => answers.push(said.op) > 0 && answer.call(session, said);
    rig.service.heard(session, message as unknown as WorkerMessage);
    return new WeakRef(args);
  };
  send(rig.worker('w1', 'r1', 's1'));
  await settled();
  const joined = send(rig.worker('w1', 'r1', 's2'));
  await settled();
  collect();
  expect(answers).toEqual(['receipt', 'receipt']);
  expect(joined.deref()).toBeUndefined();
  expect(rig.service.status()).toMatchObject({ running: 1, repeated: 1 });
});

test('AC-BR14 the log says which session connected again, for each worker and epoch, and which left', () => {
  const rig = new ServiceRig(three);
  const worker = rig.worker('w1', 'r1', 's1');
  rig.service.connected(worker);
  rig.service.left(worker, 'replaced');
  rig.service.connected(worker);
  rig.service.connected(rig.worker('w2', 'r1', 's1'));
  rig.service.connected(rig.worker('w1', 'r1', 's1', 'e2'));
  const session = { worker: 'w1', session: 's1' };
  expect(rig.events).toEqual([
    { kind: 'connected', ...session, isAgain: false },
    { kind: 'disconnected', ...session, reason: 'replaced' },
    { kind: 'connected', ...session, isAgain: true },
    { kind: 'connected', ...session, worker: 'w2', isAgain: false },
    { kind: 'connected', ...session, isAgain: false },
  ]);
});

test('a stop waits 3 s for a log that hangs, after the time for running calls', async () => {
  const rig = new ServiceRig(three);
  rig.log.receive = () => new Promise(() => {});
  await rig.worker().call('k1', 'nova_click');
  let isStopped = false;
  const stopped = rig.service.stop(5_000).then(() => {
    isStopped = true;
  });
  await rig.clock.advanceAsync(7_999);
  expect(isStopped).toBe(false);
  await rig.clock.advanceAsync(1);
  await stopped;
});

test('a stop answers everything that was read', async () => {
  const rig = new ServiceRig(three, { runningPerWorker: 1 });
  const tool = gate<string>();
  rig.host.onCall = () => tool.promise;
  const worker = rig.worker();
  await worker.call('runs', 'nova_click');
  await worker.call('waits', 'nova_click');
  const stopped = rig.service.stop(5_000);
  await worker.call('late', 'nova_click');
  tool.resolve('{"n":1}');
  await stopped;
  expect([...worker.answers]).toEqual([
    ['runs', 'receipt'],
    ['waits', 'receipt'],
    ['late', 'overloaded'],
  ]);
  expect(worker.outcome('runs')).toBe('{"n":1}');
  const handedBack = { code: 'overloaded', details: { reason: 'stopping', execution: 'not_executed' } };
  expect(worker.outcome('waits')).toMatchObject(handedBack);
  // A worker that was not connected gets the same answer from the next start.
  await rig.restart();
  worker.heard.length = 0;
  await rig.service.ask(worker, ['waits']);
  expect(worker.outcome('waits')).toMatchObject(handedBack);
  expect(rig.host.calls).toHaveLength(1);
});

describe('a reply', () => {
  const books = { books: { tools: ['read'] } };

  test('D-43 that cannot be recorded is sent, and the service serves this worker and others as before', async () => {
    const rig = new ServiceRig(books);
    const [ann, bob] = [rig.worker('ann'), rig.worker('bob')];
    rig.host.onCall = ({ options }) => `{"for":"${options.principal?.id}"}`;
    const finish = rig.log.finish.bind(rig.log);
    rig.log.finish = (id, ...rest) =>
      id.worker === 'ann' ? Promise.reject(new Error('no answer')) : finish(id, ...rest);
    await ann.call('k1', 'read');
    await bob.call('k2', 'read');
    expect([ann.outcome('k1'), bob.outcome('k2')]).toEqual(['{"for":"ann"}', '{"for":"bob"}']);
    expect(rig.events.map(({ kind }) => kind)).toEqual(['problem']);
    rig.log.finish = finish;
    await ann.call('k3', 'read');
    expect(ann.outcome('k3')).toBe('{"for":"ann"}');
    expect(rig.service.status()).toMatchObject({ running: 0, waiting: 0 });
  });

  test('D-43 that its worker does not read stays in the log until the worker asks, and delays no other call', async () => {
    const rig = new ServiceRig(books);
    const [ann, bob] = [rig.worker('ann'), rig.worker('bob')];
    ann.isReading = false;
    await ann.call('k1', 'read');
    await bob.call('k2', 'read');
    expect([ann.outcome('k1'), bob.outcome('k2')]).toEqual([undefined, '{"content":[]}']);
    expect(await rig.service.ask(ann, ['k1'])).toEqual({ running: ['k1'], resend: [] });
    ann.isReading = true;
    expect(await rig.service.ask(ann, ['k1'])).toEqual({ running: [], resend: [] });
    expect(ann.outcome('k1')).toBe('{"content":[]}');
    expect(rig.host.calls).toHaveLength(2);
  });

  test('D-43 without room waits, while other workers are served; it is sent when there is room', async () => {
    const rig = new ServiceRig(books);
    const [ann, bob] = [rig.worker('ann'), rig.worker('bob')];
    rig.host.onCall = () => `{"text":"${'x'.repeat(4_000_000)}"}`;
    const keys = Array.from({ length: 17 }, (_, at) => `k${at}`);
    for (const key of keys) await ann.call(key, 'read');
    // 64 MiB have room for 16 of them.
    expect(keys.filter((key) => ann.outcome(key) === undefined)).toEqual(['k16']);
    await ann.call('next', 'read');
    expect(ann.answers.get('next')).toBe('overloaded');
    await bob.call('k0', 'read');
    expect(bob.outcome('k0')).toBeDefined();
    ann.acknowledge('k0');
    await settled();
    await settled();
    expect(ann.outcome('k16')).toBeDefined();
  });
});
