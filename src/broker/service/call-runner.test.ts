import { describe, expect, test } from 'vitest';
import { MemoryCallLog } from '../../../test/fakes/memory-call-log.js';
import { RunnerRig, settle } from '../../../test/fakes/runner-rig.js';
import { HostError } from '../../kernel/errors.js';
import type { NewCall } from '../calls/call-log.js';

describe('a call', () => {
  test('is durable before it executes, and its outcome before the reply', async () => {
    const rig = new RunnerRig();
    const steps: string[] = [];
    const { receive, finish } = rig.log;
    rig.log.receive = async (call: NewCall) => {
      const received = await receive.call(rig.log, call);
      steps.push(`received ${call.state}, executed ${rig.executed.length}`);
      return received;
    };
    const heard = rig.send();
    rig.log.finish = async (...args) => {
      const row = await finish.apply(rig.log, args);
      steps.push(`finished, heard ${heard.all.length}`);
      return row;
    };
    await settle();
    await rig.end('{"n":1}');
    expect(steps).toEqual(['received running, executed 0', 'finished, heard 1']);
    expect(heard.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(await rig.row()).toMatchObject({ state: 'done', attempts: 1 });
  });

  test.each([
    [1_000, 990],
    [11, 1],
  ])('with %d ms left gives the server %d ms', async (leftMs, timeMs) => {
    const rig = new RunnerRig();
    rig.send('k1', { deadlineAtMs: rig.clock.nowMs() + leftMs });
    await settle();
    expect(rig.executed[0]?.timeMs).toBe(timeMs);
  });

  test('that fails has its error as outcome', async () => {
    const rig = new RunnerRig();
    const heard = rig.send();
    await settle();
    await rig.end(new HostError('tool_throttled', 'slow down', { reason: 'r' }));
    expect(heard.all).toEqual(['receipt me', 'error tool_throttled r']);
    expect(await rig.row()).toMatchObject({ state: 'done' });
  });

  test('that is refused at its first sending leaves no row', async () => {
    const rig = new RunnerRig();
    rig.refusal = new HostError('denied', 'no');
    const heard = rig.send();
    await settle();
    expect(heard.all).toEqual(['refused denied']);
    expect(await rig.row()).toBeUndefined();
  });

  test('that was sent before is recorded as refused, so that no other copy of it runs', async () => {
    const rig = new RunnerRig();
    rig.refusal = new HostError('denied', 'no');
    const heard = rig.send('k1', { sentBefore: { storeId: 'store', hasReceipt: false } });
    await settle();
    expect(heard.all).toEqual(['receipt me', 'error denied undefined']);
    rig.refusal = undefined;
    expect(rig.send().all).toEqual([]);
    await settle();
    expect(rig.executed).toHaveLength(0);
  });

  test.each([0, 10])(
    'K9 that arrives %d ms before its deadline is expired, because its time on the way is not counted',
    async (leftMs) => {
      const rig = new RunnerRig();
      const heard = rig.send('k1', { deadlineAtMs: rig.clock.nowMs() + leftMs });
      await settle();
      expect(heard.all).toEqual(['refused expired']);
    },
  );

  test('whose outcome cannot be recorded is answered all the same, and counts as uncertain later', async () => {
    const rig = new RunnerRig();
    const { finish } = rig.log;
    rig.log.finish = () => Promise.reject(new HostError('transport', 'disk'));
    const heard = rig.send();
    await settle();
    await rig.end('{"n":1}');
    expect(heard.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(rig.problems).toHaveLength(1);
    rig.log.finish = finish;
    const again = rig.send();
    await settle();
    expect(again.all).toEqual(['receipt me', 'error outcome_uncertain host_lost']);
    expect(rig.executed).toHaveLength(1);
  });

  test('is refused when the log fails, and did not run', async () => {
    const rig = new RunnerRig();
    rig.log.receive = () => Promise.reject(new HostError('transport', 'disk', { execution: 'uncertain' }));
    const heard = rig.send();
    await settle();
    expect(heard.all).toEqual(['refused transport']);
    expect(rig.executed).toHaveLength(0);
  });
});

describe('between the receipt and the begin', () => {
  test.each<[string, (rig: RunnerRig) => void, string]>([
    [
      'a changed role',
      (rig) => (rig.refusal = new HostError('denied', 'no', { reason: 'allowlist' })),
      'denied allowlist',
    ],
    ['a cancel', (rig) => rig.runner.cancel({ worker: 'w1', epoch: 'e1', key: 'k1' }, 's1'), 'cancelled undefined'],
    ['a passed deadline', (rig) => rig.clock.advance(1_000), 'expired undefined'],
  ])('%s keeps the call from running', async (_name, change, error) => {
    const rig = new RunnerRig();
    const { receive } = rig.log;
    rig.log.receive = async (call: NewCall) => {
      const received = await receive.call(rig.log, call);
      change(rig);
      return received;
    };
    const heard = rig.send();
    await settle();
    expect(heard.all).toEqual(['receipt me', `error ${error}`]);
    expect(await rig.row()).toMatchObject({ state: 'refused' });
    expect(rig.executed).toHaveLength(0);
  });

  test.each<[string, (rig: RunnerRig) => void, string]>([
    [
      'a changed role',
      (rig) => (rig.refusal = new HostError('denied', 'no', { reason: 'allowlist' })),
      'denied allowlist',
    ],
    ['a cancel', (rig) => rig.runner.cancel({ worker: 'w1', epoch: 'e1', key: 'late' }, 's1'), 'cancelled undefined'],
    ['a passed deadline', (rig) => rig.clock.advance(1_000), 'expired undefined'],
  ])('%s ends a call that waits for its turn', async (_name, change, error) => {
    const rig = new RunnerRig();
    rig.limit(1, 10);
    rig.send('first', { deadlineAtMs: 10_000 });
    const late = rig.send('late');
    await settle();
    expect(late.all).toEqual(['receipt me']);
    expect(await rig.row('late')).toMatchObject({ state: 'received' });
    change(rig);
    if (rig.refusal) rig.executed[0]?.end('{}');
    await settle();
    expect(late.all).toEqual(['receipt me', `error ${error}`]);
    expect(rig.executed).toHaveLength(1);
  });
});

describe('a second sending', () => {
  test('joins the first: both get the outcome of one execution', async () => {
    const rig = new RunnerRig();
    const first = rig.send('k1', {}, 's1');
    const before = rig.send('k1', {}, 's2');
    await settle();
    const after = rig.send('k1', {}, 's3');
    await rig.end('{"n":1}');
    for (const heard of [first, before, after]) expect(heard.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(rig.executed).toHaveLength(1);
  });

  test('of the same session replaces the caller, and each has its receipt', async () => {
    const rig = new RunnerRig();
    const first = rig.send('k1', {}, 's1');
    await settle();
    const second = rig.send('k1', {}, 's1');
    await rig.end('{"n":1}');
    expect([first.all, second.all]).toEqual([['receipt me'], ['receipt me', 'result {"n":1}']]);
  });

  test('with other arguments is a conflict, and the first continues', async () => {
    const rig = new RunnerRig();
    const first = rig.send();
    await settle();
    expect(rig.send('k1', { digest: 'x' }, 's2').all).toEqual(['refused key_conflict']);
    await rig.end('{"n":1}');
    expect(first.all).toEqual(['receipt me', 'result {"n":1}']);
    const late = rig.send('k1', { digest: 'x' });
    await settle();
    expect(late.all).toEqual(['refused key_conflict']);
  });

  test('after the outcome is answered from the log', async () => {
    const rig = new RunnerRig();
    rig.send();
    await settle();
    await rig.end('{"n":1}');
    const again = rig.send('k1', { sentBefore: { storeId: 'store', hasReceipt: true } });
    await settle();
    expect(again.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(rig.executed).toHaveLength(1);
  });

  test('is answered from the log when the log is full', async () => {
    const rig = new RunnerRig();
    rig.send();
    await settle();
    await rig.end('{"n":1}');
    rig.log.refusal = () => new HostError('overloaded', 'full');
    const [again, fresh, doubtful] = [
      rig.send('k1', { sentBefore: { storeId: 'store', hasReceipt: true } }),
      rig.send('k2'),
      rig.send('k3', { sentBefore: { storeId: 'old', hasReceipt: true } }),
    ];
    await settle();
    expect(again.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(fresh.all).toEqual(['refused overloaded']);
    expect(doubtful.all).toEqual(['refused overloaded']);
  });
});

describe('after a host died', () => {
  test('a call that this host had not begun is begun by the next host', async () => {
    const rig = new RunnerRig();
    rig.limit(1, 10);
    rig.send('first');
    rig.send();
    await settle();
    await rig.restart();
    const again = rig.send('k1', { sentBefore: { storeId: 'old', hasReceipt: true } });
    await settle();
    await rig.end('{"n":2}');
    expect(again.all).toEqual(['receipt me', 'result {"n":2}']);
    expect(await rig.row()).toMatchObject({ state: 'done', attempts: 1, owner: rig.log.owner });
  });

  test('a call that this host had begun is uncertain', async () => {
    const rig = new RunnerRig();
    rig.send();
    await settle();
    await rig.restart();
    const again = rig.send('k1', { sentBefore: { storeId: 'old', hasReceipt: true } });
    await settle();
    expect(again.all).toEqual(['receipt me', 'error outcome_uncertain host_lost']);
    expect(rig.executed).toHaveLength(1);
  });

  test('B10: a repeatable call is begun three times, then it is uncertain', async () => {
    const rig = new RunnerRig();
    rig.isRepeatable = true;
    const sentBefore = { storeId: 'old', hasReceipt: true };
    for (let times = 1; times <= 3; times++) {
      rig.send('k1', { sentBefore });
      await settle();
      expect(rig.executed).toHaveLength(times);
      await rig.restart();
    }
    const last = rig.send('k1', { sentBefore });
    await settle();
    expect(last.all).toEqual(['receipt me', 'error outcome_uncertain attempts']);
    expect(rig.executed).toHaveLength(3);
  });

  test.each<[string, (rig: RunnerRig) => Promise<void>, string]>([
    [
      'refused',
      async ({ runner }) => void runner.cancel({ worker: 'w1', epoch: 'e1', key: 'k1' }, 's1'),
      'outcome_uncertain',
    ],
    ['throttled', (rig) => rig.end(new HostError('overloaded', 'x', { execution: 'not_executed' })), 'overloaded'],
  ])('no error says `not_executed` for a repeatable call that may have run when it is %s', async (_name, end, code) => {
    const rig = new RunnerRig();
    rig.isRepeatable = true;
    const executions: unknown[] = [];
    const { finish, begin } = rig.log;
    rig.send();
    await settle();
    await rig.restart();
    rig.log.finish = (id, owner, outcome) => {
      executions.push(JSON.parse(outcome.reply.toString()).error);
      return finish.call(rig.log, id, owner, outcome);
    };
    rig.log.begin = async (id, version) => {
      const begun = await begin.call(rig.log, id, version);
      if (code === 'outcome_uncertain') await end(rig);
      return begun;
    };
    rig.send('k1', { sentBefore: { storeId: 'store', hasReceipt: true } });
    await settle();
    if (code !== 'outcome_uncertain') await end(rig);
    expect(executions).toMatchObject([{ code, execution: 'uncertain' }]);
  });

  test('a call that another running host has is left to that host', async () => {
    const rig = new RunnerRig();
    rig.send();
    await settle();
    const other = new RunnerRig();
    other.log = new MemoryCallLog(rig.clock, rig.rows, 'store');
    other.limit(64, 256);
    const heard = other.send('k1', { sentBefore: { storeId: 'store', hasReceipt: false } });
    await settle();
    expect(heard.all).toEqual(['receipt other', 'ended']);
    expect(other.executed).toHaveLength(0);
  });

  test('two hosts that find a call not begun: one runs it', async () => {
    const rig = new RunnerRig();
    rig.limit(1, 10);
    rig.send('first');
    rig.send();
    await settle();
    await rig.log.close();
    const hosts = [new RunnerRig(), new RunnerRig()];
    for (const host of hosts) {
      host.log = new MemoryCallLog(rig.clock, rig.rows, 'store');
      host.limit(64, 256);
      host.send('k1', { sentBefore: { storeId: 'store', hasReceipt: true } });
    }
    await settle();
    expect(hosts.map(({ executed }) => executed.length).sort()).toEqual([0, 1]);
  });

  test.each([
    ['an empty store', 'other', false],
    ['a store that lost the row', 'store', true],
  ])('%s does not run a call that may have run before', async (_name, storeId, hasReceipt) => {
    const rig = new RunnerRig();
    const heard = rig.send('k1', { sentBefore: { storeId, hasReceipt } });
    await settle();
    expect(heard.all).toEqual(['receipt me', 'error outcome_uncertain store_changed']);
    expect(rig.executed).toHaveLength(0);
  });
});

describe('the limit of one worker', () => {
  test('lets calls wait in order, and refuses more than may wait', async () => {
    const rig = new RunnerRig();
    rig.limit(2, 2);
    const heard = ['a', 'b', 'c', 'd', 'e'].map((key) => rig.send(key));
    await settle();
    expect(rig.executed).toHaveLength(2);
    expect(heard.map(({ all }) => all[0])).toEqual([...Array(4).fill('receipt me'), 'refused overloaded']);
    expect(rig.runner.figures()).toMatchObject({ waiting: 2, running: 2 });
    await rig.end('{"n":0}', 0);
    expect(rig.executed).toHaveLength(3);
    expect(await rig.row('c')).toMatchObject({ state: 'running' });
    expect(await rig.row('d')).toMatchObject({ state: 'received' });
    for (let at = 1; at < 4; at++) await rig.end('{"n":1}', at);
    expect(heard[3]?.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(rig.runner.figures()).toEqual({ waiting: 0, running: 0, oldestMs: undefined });
  });

  test('is the only limit: calls of other workers begin at once', async () => {
    const rig = new RunnerRig();
    rig.limit(96, 256);
    for (let worker = 0; worker < 4; worker++)
      for (let at = 0; at < 96; at++) rig.send('k', { id: { worker: `w${worker}`, epoch: 'e', key: `k${at}` } });
    await settle();
    expect(rig.executed).toHaveLength(4 * 96);
  });
});

describe('a call that two sessions wait for', () => {
  const id = { worker: 'w1', epoch: 'e1', key: 'k1' };

  test('continues when one of them cancels; that session gets no reply', async () => {
    const rig = new RunnerRig();
    const [one, other] = [rig.send(), rig.send('k1', {}, 's2')];
    await settle();
    expect(rig.runner.cancel(id, 's1')).toBe('left');
    await rig.end('{"n":1}');
    expect(one.all).toEqual(['receipt me']);
    expect(other.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(rig.executed[0]?.signal.aborted).toBe(false);
  });

  test('ends when both cancel; a session that cancels before its receipt gets a refusal', async () => {
    const rig = new RunnerRig();
    const [one, other] = [rig.send(), rig.send('k1', {}, 's2')];
    expect(rig.runner.cancel(id, 's1')).toBe('left');
    await settle();
    expect(rig.runner.cancel(id, 's2')).toBe('cancelled');
    await settle();
    expect(one.all).toEqual(['refused cancelled uncertain']);
    expect(other.all).toEqual(['receipt me', 'error cancelled undefined']);
  });
});

describe('a stop', () => {
  test('lets running calls end, records waiting ones as refused, and begins nothing more', async () => {
    const rig = new RunnerRig();
    rig.limit(1, 10);
    const running = rig.send('a');
    const waiting = rig.send('b');
    await settle();
    const stopped = rig.runner.stop(5_000, 1_000);
    const refused = rig.send('c');
    await rig.end('{"n":1}');
    await stopped;
    expect(running.all).toEqual(['receipt me', 'result {"n":1}']);
    expect(waiting.all).toEqual(['receipt me', 'error overloaded stopping']);
    expect(await rig.row('b')).toMatchObject({ state: 'refused' });
    expect(refused.all).toEqual(['refused overloaded']);
    expect(rig.executed).toHaveLength(1);
  });

  test('never says `not_executed` for a waiting call that an earlier host may have run', async () => {
    const rig = new RunnerRig();
    rig.limit(1, 10);
    rig.isRepeatable = true;
    rig.send('a');
    const waiting = rig.send('b', { sentBefore: { storeId: 'another', hasReceipt: true } });
    await settle();
    const stopped = rig.runner.stop(5_000, 1_000);
    await rig.end('{"n":1}');
    await stopped;
    expect(waiting.all).toEqual(['receipt me', 'ended']);
    expect(await rig.row('b')).toMatchObject({ state: 'received' });
  });

  test('cancels calls that still run after its grace time, and records that', async () => {
    const rig = new RunnerRig();
    const heard = rig.send();
    await settle();
    const stopped = rig.runner.stop(5_000, 1_000);
    await rig.clock.advanceAsync(5_000);
    await stopped;
    expect(heard.all).toEqual(['receipt me', 'error cancelled undefined']);
    expect(await rig.row()).toMatchObject({ state: 'done' });
  });

  test('refuses a call that was received and not begun', async () => {
    const rig = new RunnerRig();
    const heard = rig.send();
    const stopped = rig.runner.stop(5_000, 1_000);
    await settle();
    await stopped;
    expect(heard.all).toEqual(['receipt me', 'error overloaded stopping']);
    expect(rig.executed).toHaveLength(0);
  });
});
