/** Each call of a worker has one key and one end, and its error says whether it may have run. */
import { describe, expect, test } from 'vitest';
import type { CancelSignal } from '../../../src/kernel/cancel-signal.js';
import { HostError } from '../../../src/kernel/errors.js';
import { makeRig, outcomeOf, unconnected, watched } from './worker-rig.js';

describe('a call', () => {
  test('AC-P4 returns the result of the tool, which gets name and arguments', async () => {
    const { tools, host } = await makeRig();
    expect(tools.list().map(({ server, name }) => `${server}/${name}`)).toEqual(['nova/nova_click']);
    expect(await outcomeOf(tools.execute('nova', 'nova_click', { mark: 7 }))).toBe('nova_click {"mark":7}');
    expect(host.ran).toMatchObject([{ server: 'nova', tool: 'nova_click', args: '{"mark":7}' }]);
    expect(await outcomeOf(tools.execute('nova', 'nova_type', {}))).toBe('tool_not_found not_executed');
    expect(host.sendings).toHaveLength(1);
  });

  test('AC-P5 eight at once get the answers to their own arguments', async () => {
    const { tools } = await makeRig();
    const calls = Array.from({ length: 8 }, (_, n) => outcomeOf(tools.execute(undefined, 'nova_click', { n })));
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 8 }, (_, n) => `nova_click {"n":${n}}`));
  });

  test('AC-P6 four at once overlap on a tool that takes time', async () => {
    const { tools, host, settle } = await makeRig();
    let running = 0;
    let most = 0;
    const ends: (() => void)[] = [];
    host.onCall = async () => {
      most = Math.max(most, ++running);
      await new Promise<void>((resolve) => ends.push(resolve));
      running--;
      return 'done';
    };
    const calls = Array.from({ length: 4 }, () => watched(tools.execute('nova', 'nova_click', {})));
    await settle();
    for (const end of ends) end();
    await settle();
    expect(most).toBe(4);
    expect(calls.map(({ outcome }) => outcome)).toEqual(['done', 'done', 'done', 'done']);
  });

  test('AC-BR10 gets its own reply, in whatever order replies come', async () => {
    const { tools, host, settle } = await makeRig();
    const ends = new Map<string, () => void>();
    host.onCall = ({ args }) => new Promise((resolve) => ends.set(args, () => resolve(args)));
    const calls = [1, 2, 3].map((n) => watched(tools.execute('nova', 'nova_click', { n })));
    await settle();
    for (const n of [3, 1, 2]) ends.get(`{"n":${n}}`)?.();
    await settle();
    expect(calls.map(({ outcome }) => outcome)).toEqual(['{"n":1}', '{"n":2}', '{"n":3}']);
  });

  test('AC-BR11 that timed out is not waited for any more; its late reply is acknowledged and dropped', async () => {
    const { tools, host, clock, settle } = await makeRig();
    let end = () => {};
    host.onCall = () =>
      new Promise((resolve) => {
        end = () => resolve('late');
      });
    const call = watched(tools.execute('nova', 'nova_click', {}, { deadlineMs: 1_000 }));
    await clock.advanceAsync(1_000);
    expect(call.outcome).toBe('timeout uncertain');
    end();
    await clock.advanceAsync(100);
    expect(tools.status()).toMatchObject({ inFlight: 0, droppedReplies: 1 });
    expect(host.ackedKeys).toEqual(host.cancelled);
    await settle();
    expect(host.rows.size).toBe(0);
  });

  test('D-45 that its caller aborts is cancelled at the host, once, by its key', async () => {
    const { tools, host, settle } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const abort = new AbortController();
    const call = watched(tools.execute('nova', 'nova_click', {}, { signal: abort.signal }));
    await settle();
    abort.abort();
    abort.abort();
    await settle();
    expect(call.outcome).toBe('cancelled uncertain');
    expect(host.cancelled).toEqual([host.ran[0]?.key]);
  });

  test('D-45 that is aborted while there is no connection is cancelled over the next one, and not sent', async () => {
    const { tools, host, broker, clock, settle } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const abort = new AbortController();
    const call = watched(tools.execute('nova', 'nova_click', {}, { signal: abort.signal }));
    await settle();
    broker.cut();
    abort.abort();
    await clock.advanceAsync(2_000);
    expect(call.outcome).toBe('cancelled uncertain');
    expect(host.cancelled).toEqual([host.ran[0]?.key]);
    expect(host.sendings).toHaveLength(1);
  });

  test('D-42 cancelled before any host was there is never sent', async () => {
    const { tools, host, broker, clock, settle } = await makeRig();
    broker.refusal = new HostError('connect_failed', 'down');
    broker.cut();
    await settle();
    const abort = new AbortController();
    const call = watched(tools.execute('nova', 'nova_click', {}, { signal: abort.signal }));
    await clock.advanceAsync(3_000);
    abort.abort();
    broker.refusal = undefined;
    await clock.advanceAsync(5_000);
    expect([call.outcome, host.sendings.length]).toEqual(['cancelled not_executed', 0]);
  });

  test('D-47 leaves nothing at the host: its reply is acknowledged', async () => {
    const { tools, host, clock } = await makeRig();
    await tools.execute('nova', 'nova_click', {});
    await clock.advanceAsync(100);
    expect(host.ackedKeys).toEqual([host.ran[0]?.key]);
    expect(host.rows.size).toBe(0);
  });

  test('D-49 brings back the whole result, byte for byte', async () => {
    const { tools, host } = await makeRig();
    const whole =
      '{"content":[{"type":"image","data":"QUJD"}],"structuredContent":{"n":1.0},"isError":true,"_meta":{"x":1}}';
    host.era = 'modern';
    host.onCall = () => Buffer.from(whole);
    const result = await tools.execute('nova', 'nova_click', {});
    expect([result.bytes.toString(), result.isError, result.era]).toEqual([whole, true, 'modern']);
  });

  test('D-55 carries its arguments as written, its trace, and the time that is left', async () => {
    const { tools, host, clock, settle } = await makeRig();
    const trace = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: undefined };
    await tools.execute('nova', 'nova_click', '{"n":12345678901234567890}', { trace, deadlineMs: 5_000 });
    expect(host.sendings[0]?.request).toMatchObject({ deadlineMs: 5_000, trace, manifestRevision: 'r1' });
    expect(host.sendings[0]?.request.args.toString()).toBe('{"n":12345678901234567890}');
    await tools.execute('nova', 'nova_click', {}, { deadlineMs: 86_400_000 });
    expect(host.sendings[1]?.request.deadlineMs).toBe(600_000);
    for (const args of ['[1]', '{"a":1', '7'])
      expect(await outcomeOf(tools.execute('nova', 'nova_click', args))).toBe('invalid_arguments not_executed');
    await expect(tools.execute('nova', 'nova_click', { text: 'x'.repeat(4_200_000) })).rejects.toMatchObject({
      ...{ code: 'invalid_arguments', details: { reason: 'message_too_large', execution: 'not_executed' } },
    });
    await settle();
    await clock.advanceAsync(0);
  });
});

describe('a key', () => {
  test('D-41 is made once: the tool runs once, although the connection is lost after the run', async () => {
    const { tools, host, broker, clock } = await makeRig();
    broker.losesReplies = true;
    const call = watched(tools.execute('nova', 'nova_click', {}));
    await clock.advanceAsync(100);
    broker.losesReplies = false;
    broker.cut();
    await clock.advanceAsync(2_000);
    expect(call.outcome).toBe('nova_click {}');
    expect(host.ran).toHaveLength(1);
    expect(host.asked).toEqual([[host.ran[0]?.key]]);
  });

  test('D-41 is kept when the receipt is lost; the second sending names the store of the first', async () => {
    const { tools, host, broker, clock } = await makeRig();
    broker.losesReceipts = true;
    broker.losesReplies = true;
    const call = watched(tools.execute('nova', 'nova_click', {}));
    await clock.advanceAsync(1_000);
    broker.losesReceipts = broker.losesReplies = false;
    broker.storeId = 'store-2';
    broker.cut();
    await clock.advanceAsync(2_000);
    expect([call.outcome, host.ran.length]).toEqual(['nova_click {}', 1]);
    const [first, second] = host.sendings.map(({ request }) => request);
    expect(second).toMatchObject({ key: first?.key, sentBefore: { storeId: 'store-1', hasReceipt: false } });
    // The second sending is made after 1 s, over the next connection.
    expect([first?.deadlineMs, Math.round((second?.deadlineMs ?? 0) / 1_000)]).toEqual([60_000, 59]);
  });

  test.each(['order-7', 'orders/7 ü', 'x'.repeat(129)])('of a caller is sent as a valid id: %s', async (key) => {
    const { tools, host } = await makeRig();
    await tools.execute('nova', 'nova_click', {}, { idempotencyKey: key });
    await tools.execute('nova', 'nova_click', {}, { idempotencyKey: key });
    const [first, second] = host.sendings.map(({ request }) => request);
    expect(first).toMatchObject({ isCallersKey: true, key: expect.stringMatching(/^[A-Za-z0-9_-]{1,128}$/) });
    expect(second?.key).toBe(first?.key);
  });
});

test('a call that ends at once leaves no listener at the signal of its caller', async () => {
  const { tools, host } = await makeRig();
  host.onCall = () => new Promise(() => {});
  const listeners = new Set<() => void>();
  const signal: CancelSignal = {
    aborted: false,
    addEventListener: (_type, listener) => void listeners.add(listener),
    removeEventListener: (_type, listener) => void listeners.delete(listener),
  };
  const options = { idempotencyKey: 'order-7', signal };
  void tools.execute('nova', 'nova_click', { n: 1 }, { idempotencyKey: 'order-7' }).catch(() => {});
  expect(await outcomeOf(tools.execute('nova', 'nova_click', { n: 2 }, options))).toBe('key_conflict not_executed');
  expect(listeners.size).toBe(0);
  await tools.close();
});

describe('an error says', () => {
  test('that a call which was never sent did not run', async () => {
    const { tools, broker, clock, settle } = await makeRig();
    broker.refusal = new HostError('connect_failed', 'down');
    broker.cut();
    await settle();
    const call = watched(tools.execute('nova', 'nova_click', {}, { deadlineMs: 2_000 }));
    await clock.advanceAsync(2_000);
    expect(call.outcome).toBe('timeout not_executed');
  });

  test('code, message and facts that the host sent', async () => {
    const { tools, host } = await makeRig();
    const error = new HostError('circuit_open', "server 'nova' is down", {
      server: 'nova',
      retryAfterMs: 70,
      hint: 'wait',
    });
    host.onSending = () => error;
    await expect(tools.execute('nova', 'nova_click', {})).rejects.toMatchObject({
      ...{ code: 'circuit_open', message: "server 'nova' is down", hint: 'wait' },
      details: { server: 'nova', retryAfterMs: 70 },
    });
  });

  test('that the outcome is not known when the worker is closed during a call', async () => {
    const { tools, host, settle } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const call = watched(tools.execute('nova', 'nova_click', {}));
    await settle();
    await tools.close();
    expect(call.outcome).toBe('cancelled uncertain');
    expect(host.cancelled).toHaveLength(1);
    expect(await outcomeOf(tools.execute('nova', 'nova_click', {}))).toBe('cancelled not_executed');
  });

  test('which servers have the tool, if several do', async () => {
    const { tools } = await makeRig({ tools: ['nova/click', 'web/click'] });
    await expect(tools.execute(undefined, 'click', {})).rejects.toMatchObject({
      ...{ code: 'invalid_request', hint: 'name one of nova, web' },
    });
    expect(await outcomeOf(tools.execute('web', 'click', {}))).toBe('click {}');
  });
});

test('progress reaches the caller while the call runs', async () => {
  const { tools, host, settle } = await makeRig();
  let end = () => {};
  host.onCall = () =>
    new Promise((resolve) => {
      end = () => resolve('done');
    });
  const seen: string[] = [];
  const onProgress = (params: Buffer) => {
    seen.push(params.toString());
    throw new Error('an error of the listener');
  };
  const call = watched(tools.execute('nova', 'nova_click', {}, { onProgress }));
  await settle();
  expect(host.sendings[0]?.request.wantsProgress).toBe(true);
  host.progress(host.ran[0] as (typeof host.ran)[0], { progress: 1 });
  await settle();
  end();
  await settle();
  expect([seen, call.outcome]).toEqual([['{"progress":1}'], 'done']);
});

test('a worker that is closed while it connects ends at once', async () => {
  const { tools, broker } = unconnected({
    prepare: (transport) => {
      transport.isSilent = true;
    },
  });
  await tools.close();
  expect(tools.status().state).toBe('closed');
  expect(broker.opened).toEqual([]);
});
