import { describe, expect, test } from 'vitest';
import { MemoryCallLog, MemoryRows } from '../../test/fakes/memory-call-log.js';
import type { ToolResult } from '../host/host-interface.js';
import type { KeyedCall } from '../host/keyed-calls.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { keyedCalls } from './keyed-calls.js';
import { brokerLimits } from './protocol/limits.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

const resultOf = (text: string): ToolResult => {
  const bytes = Buffer.from(text);
  return { bytes, isError: false, era: 'legacy', json: () => JSON.parse(text) as unknown };
};

class Rig {
  readonly clock = new FakeClock();
  readonly rows = new MemoryRows(this.clock);
  readonly executed: { resolve: (text: string) => void; reject: (error: Error) => void; signal: CancelSignal }[] = [];
  log = new MemoryCallLog(this.clock, this.rows);
  calls = keyedCalls(this.log, this.clock, true, () => {});
  isRepeatable = false;

  /** Ends the host, and starts it again on the same store. */
  async restart(): Promise<void> {
    await this.log.close();
    this.log = new MemoryCallLog(this.clock, this.rows);
    this.calls = keyedCalls(this.log, this.clock, true, () => {});
  }

  /** The outcome for the caller: the text of the result, or the code of the error. */
  async call(more: Partial<KeyedCall> = {}): Promise<string> {
    const call: KeyedCall = {
      ...{ principal: 'p1', key: 'pay 4711', server: 'bank', tool: 'pay', args: '{"n":1}' },
      ...{ deadlineMs: 1_000, signal: undefined, isRepeatable: () => this.isRepeatable },
      execute: (signal) =>
        new Promise((resolve, reject) => {
          signal.addEventListener('abort', () => reject(new HostError('cancelled', 'x', { execution: 'uncertain' })));
          this.executed.push({ resolve: (text) => resolve(resultOf(text)), reject, signal });
        }),
      ...more,
    };
    return this.calls.run(call).then(
      ({ bytes, isError }) => `${isError ? 'isError ' : ''}${bytes}`,
      (error: HostError) => `${error.code} ${error.details.execution}`,
    );
  }

  async end(text: string): Promise<void> {
    await settle();
    this.executed.at(-1)?.resolve(text);
    await settle();
  }
}

describe('three calls with one key', () => {
  test('B11 at once are one execution, and all get its result', async () => {
    const rig = new Rig();
    const heard = [rig.call(), rig.call(), rig.call()];
    await rig.end('{"paid":1}');
    expect(await Promise.all(heard)).toEqual(Array(3).fill('{"paid":1}'));
    expect(rig.executed).toHaveLength(1);
  });

  test('B11 one after the other are one execution, also over a restart', async () => {
    const rig = new Rig();
    const first = rig.call();
    await rig.end('{"paid":1,"isError":true}');
    expect(await first).toBe('isError {"paid":1,"isError":true}');
    expect(await rig.call()).toBe('isError {"paid":1,"isError":true}');
    await rig.restart();
    expect(await rig.call()).toBe('isError {"paid":1,"isError":true}');
    expect(rig.executed).toHaveLength(1);
  });
});

test('the row is durable before the tool is called', async () => {
  const rig = new Rig();
  const { receive } = rig.log;
  let executedBefore: number | undefined;
  rig.log.receive = async (call) => {
    const received = await receive.call(rig.log, call);
    executedBefore = rig.executed.length;
    return received;
  };
  void rig.call();
  await settle();
  expect([executedBefore, rig.executed.length]).toEqual([0, 1]);
});

test('a key belongs to one principal', async () => {
  const rig = new Rig();
  const [one, two] = [rig.call({ principal: 'p1' }), rig.call({ principal: 'p2' })];
  await settle();
  for (const { resolve } of rig.executed) resolve('{}');
  expect(await Promise.all([one, two])).toEqual(['{}', '{}']);
  expect(rig.executed).toHaveLength(2);
});

test('B11 the same key with other arguments, or for another tool, is a conflict, whether the first call runs or is done', async () => {
  const rig = new Rig();
  const first = rig.call();
  await settle();
  expect(await rig.call({ args: '{"n":2}' })).toBe('key_conflict not_executed');
  await rig.end('{}');
  await first;
  expect(await rig.call({ tool: 'refund' })).toBe('key_conflict not_executed');
  expect(rig.executed).toHaveLength(1);
});

test('a call that was begun before a restart is uncertain, unless its tool may be repeated', async () => {
  const rig = new Rig();
  void rig.call();
  void rig.call({ key: 'other' });
  await settle();
  await rig.restart();
  expect(await rig.call()).toBe('outcome_uncertain uncertain');
  expect(await rig.call()).toBe('outcome_uncertain uncertain');
  rig.isRepeatable = true;
  const again = rig.call({ key: 'other' });
  await rig.end('{"again":1}');
  expect(await again).toBe('{"again":1}');
  expect(rig.executed).toHaveLength(3);
});

test('an error is remembered, unless the call did not run', async () => {
  const rig = new Rig();
  for (const execution of ['not_executed', 'uncertain'] as const) {
    const failed = rig.call();
    await settle();
    rig.executed.at(-1)?.reject(new HostError('overloaded', 'x', { execution }));
    expect(await failed).toBe(`overloaded ${execution}`);
  }
  expect(await rig.call()).toBe('overloaded uncertain');
  expect(rig.executed).toHaveLength(2);
});

test('at the bound new keys are refused, and no earlier key is forgotten', async () => {
  const rig = new Rig();
  const change = {
    worker: '_p1',
    isCallersKey: true,
    open: 0,
    finished: brokerLimits.callersKeysPerWorker - 1,
    bytes: 0,
  };
  rig.rows.bounds.change(change);
  const first = rig.call();
  await rig.end('{"paid":1}');
  await first;
  expect(await rig.call({ key: 'new' })).toBe('overloaded not_executed');
  void rig.call({ key: 'new', principal: 'p2' });
  await rig.end('{}');
  expect(await rig.call()).toBe('{"paid":1}');
  expect(rig.executed).toHaveLength(2);
});

test('a key is forgotten after a day', async () => {
  const rig = new Rig();
  const first = rig.call();
  await rig.end('{}');
  await first;
  rig.clock.advance(brokerLimits.callersKeyMs - 2_000);
  expect(await rig.call()).toBe('{}');
  rig.clock.advance(2_001);
  void rig.call();
  await settle();
  expect(rig.executed).toHaveLength(2);
});

test('a cancel by one caller does not end a call for which others wait; a cancel by the last caller does', async () => {
  const rig = new Rig();
  const [one, two] = [new AbortController(), new AbortController()];
  const heard = [rig.call({ signal: one.signal }), rig.call({ signal: two.signal })];
  await settle();
  one.abort();
  expect(await heard[0]).toBe('cancelled uncertain');
  expect(rig.executed[0]?.signal.aborted).toBe(false);
  two.abort();
  expect(await heard[1]).toBe('cancelled uncertain');
  expect(rig.executed[0]?.signal.aborted).toBe(true);
  expect(await rig.call({ key: 'k2', signal: AbortSignal.abort() })).toMatch(/^cancelled/);
});

test('a caller that cancels while another host runs the call is answered at once, and the call does not run again later', async () => {
  const rig = new Rig();
  rig.isRepeatable = true;
  void rig.call();
  await settle();
  const { log: first } = rig;
  rig.log = new MemoryCallLog(rig.clock, rig.rows);
  rig.calls = keyedCalls(rig.log, rig.clock, true, () => {});
  const caller = new AbortController();
  let heard: string | undefined;
  void rig.call({ signal: caller.signal }).then((text) => {
    heard = text;
  });
  await settle();
  caller.abort();
  await settle();
  expect(heard).toBe('cancelled uncertain');
  await first.close();
  await rig.clock.advanceAsync(600);
  expect(rig.executed).toHaveLength(1);
});

test('a result that is too large for the log reaches its caller, and later callers are told that the call has run', async () => {
  const rig = new Rig();
  const first = rig.call();
  const large = `{"s":"${'x'.repeat(brokerLimits.replyBytes)}"}`;
  await rig.end(large);
  expect(await first).toBe(large);
  expect(await rig.call()).toBe('result_too_large uncertain');
  expect(rig.executed).toHaveLength(1);
});

test('a call that another host runs is waited for, until the deadline', async () => {
  const rig = new Rig();
  const first = rig.call();
  await settle();
  const other = keyedCalls(new MemoryCallLog(rig.clock, rig.rows), rig.clock, true, () => {});
  const calls = rig.calls;
  rig.calls = other;
  const waits = rig.call({ deadlineMs: 5_000 });
  const gives = rig.call({ deadlineMs: 700 });
  await rig.clock.advanceAsync(600);
  expect(await gives).toBe('outcome_uncertain uncertain');
  await rig.end('{"n":1}');
  await rig.clock.advanceAsync(400);
  expect(await Promise.all([first, waits])).toEqual(['{"n":1}', '{"n":1}']);
  expect(rig.executed).toHaveLength(1);
  await calls.close();
});

test('a close lets running calls finish for its grace time, and then cancels them', async () => {
  const rig = new Rig();
  const [first, second] = [rig.call(), rig.call({ key: 'other', deadlineMs: 60_000 })];
  await settle();
  const closed = rig.calls.close(5_000);
  rig.executed[0]?.resolve('{"paid":1}');
  expect(await first).toBe('{"paid":1}');
  await rig.clock.advanceAsync(4_999);
  expect(rig.executed[1]?.signal.aborted).toBe(false);
  await rig.clock.advanceAsync(1);
  expect(rig.executed[1]?.signal.aborted).toBe(true);
  expect(await second).toBe('cancelled uncertain');
  await closed;
});
