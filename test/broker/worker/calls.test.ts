/** Calls of a worker: who gets which answer, what is sent, and what is known of a call that ended without one. */
import { describe, expect, test } from 'vitest';
import { readRequest } from '../../../src/broker/messages.js';
import { HostError } from '../../../src/kernel/errors.js';
import { mailbox, makeRig, outcomeOf, type RigOptions, watched } from './worker-rig.js';

const deferredText = () => {
  let resolve: (text: string) => void = () => {};
  const promise = new Promise<string>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
};
const text = (said: string) => JSON.stringify({ content: [{ type: 'text', text: said }] });
const dialects: [string, RigOptions][] = [
  ['in our words', {}],
  ['in the older ones', { compat: true }],
];

describe('a call', () => {
  test.each(dialects)(
    'AC-P4 of the one tool there is comes back with its name and arguments, %s',
    async (_in, options) => {
      const { tools, callSends, settle, host } = await makeRig({ ...options, host: { tools: ['nova/nova_click'] } });
      expect(tools.list().map(({ name }) => name)).toEqual(['nova_click']);
      expect(tools.toolCount).toBe(1);
      const result = await tools.execute(undefined, 'nova_click', { mark: 7 });
      expect(result.isError).toBe(false);
      expect(result.json()).toMatchObject({ content: [{ type: 'text', text: 'nova_click {"mark":7}' }] });
      const asked = host.manifestsAsked;
      expect(await outcomeOf(tools.execute(undefined, 'nova_type', {}))).toBe('tool_not_found not_executed');
      await settle();
      expect([callSends().length, host.manifestsAsked]).toEqual([1, asked]);
    },
  );

  test.each(dialects)('AC-P5 among eight at once gets the answer to its own arguments, %s', async (_in, options) => {
    const { tools } = await makeRig(options);
    const calls = Array.from({ length: 8 }, (_, n) => outcomeOf(tools.execute(undefined, 'click', { n })));
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 8 }, (_, n) => `click {"n":${n}}`));
  });

  test.each(dialects)('AC-P6 does not wait for those before it, %s', async (_in, options) => {
    const { tools, host, settle } = await makeRig(options);
    const gates = Array.from({ length: 4 }, deferredText);
    let running = 0;
    let most = 0;
    host.onCall = ({ args }) => {
      most = Math.max(most, ++running);
      const gate = gates[JSON.parse(args).n] as ReturnType<typeof deferredText>;
      return gate.promise.finally(() => running--);
    };
    const calls = gates.map((_, n) => outcomeOf(tools.execute(undefined, 'click', { n })));
    await settle();
    expect([running, most]).toEqual([4, 4]);
    for (const [n, { resolve }] of gates.entries()) resolve(text(`done ${n}`));
    expect(await Promise.all(calls)).toEqual(['done 0', 'done 1', 'done 2', 'done 3']);
  });

  test('AC-BR10 is answered by its own reply, in whichever order replies come', async () => {
    const { tools, host, settle } = await makeRig();
    const gates = [deferredText(), deferredText(), deferredText()];
    host.onCall = ({ args }) => (gates[JSON.parse(args).n] as ReturnType<typeof deferredText>).promise;
    const order: number[] = [];
    const calls = gates.map((_, n) =>
      outcomeOf(tools.execute('nova', 'click', { n })).then((outcome) => {
        order.push(n);
        return outcome;
      }),
    );
    await settle();
    for (const n of [2, 0, 1]) {
      gates[n]?.resolve(text(`of ${n}`));
      await settle();
    }
    expect(order).toEqual([2, 0, 1]);
    expect(await Promise.all(calls)).toEqual(['of 0', 'of 1', 'of 2']);
  });

  test('AC-BR11 that was given up waits no more, and its late reply is taken and dropped', async () => {
    const { tools, host, broker, clock } = await makeRig();
    const gate = deferredText();
    host.onCall = () => gate.promise;
    const call = watched(tools.execute('nova', 'click', '{ "n": 1 }', { deadlineMs: 5_000 }));
    await clock.advanceAsync(4_999);
    expect(call.outcome).toBeUndefined();
    expect(tools.status()).toMatchObject({ inFlight: 1, inFlightBytes: 10 });
    await clock.advanceAsync(1);
    expect(call.outcome).toBe('timeout uncertain');
    expect(tools.status()).toMatchObject({ inFlight: 0, inFlightBytes: 0, droppedReplies: 0 });
    gate.resolve(text('late'));
    await clock.advanceAsync(0);
    expect([tools.status().droppedReplies, broker.heldReplies]).toEqual([1, 0]);
  });

  test('D-45 that is given up is cancelled at the host, once, by its key', async () => {
    const { tools, host, callSends, settle, clock } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const abort = new AbortController();
    const first = watched(tools.execute('nova', 'click', {}, { signal: abort.signal }));
    const second = watched(tools.execute('nova', 'click', {}, { deadlineMs: 1_000 }));
    await settle();
    abort.abort();
    await clock.advanceAsync(1_000);
    expect([first.outcome, second.outcome]).toEqual(['cancelled uncertain', 'timeout uncertain']);
    expect(host.cancelled).toEqual(callSends().map(({ request }) => `${mailbox}/${request.id}`));
  });

  test('D-45 that is given up while there is no connection is cancelled when there is one again', async () => {
    const { tools, host, broker, callSends, settle, clock } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const abort = new AbortController();
    const call = watched(tools.execute('nova', 'click', {}, { signal: abort.signal }));
    await settle();
    broker.outage = new HostError('connect_failed', 'down');
    broker.cut(mailbox);
    await settle();
    abort.abort();
    await settle();
    expect([call.outcome, broker.cancels]).toEqual(['cancelled uncertain', []]);
    broker.outage = undefined;
    await clock.advanceAsync(5_000);
    expect(broker.cancels).toEqual([{ from: mailbox, id: callSends()[0]?.request.id }]);
    expect(callSends()).toHaveLength(1);
  });

  test('D-47 leaves nothing behind: replies are taken when they come, and twice the same is one', async () => {
    const { tools, broker, settle } = await makeRig();
    broker.repeatsReplies = true;
    for (let n = 0; n < 3; n++) await tools.execute('nova', 'click', { n });
    await settle();
    expect([broker.heldReplies, broker.owed]).toEqual([0, 0]);
    expect(tools.status().droppedReplies).toBe(3);
    broker.cut(mailbox);
    await settle();
    expect(tools.status().droppedReplies).toBe(3);
  });

  test('D-49 brings back the whole result, byte for byte', async () => {
    const { tools, host } = await makeRig({ host: { era: 'modern' } });
    const bytes =
      '{ "content":[{"type":"image","data":"AA==","mimeType":"image/png"}],"structuredContent":{"n":90071992547409931},"isError":true,"_meta":{"x/y":1.0},"own":[]}';
    host.onCall = () => bytes;
    const result = await tools.execute('nova', 'click', {});
    expect([result.bytes.toString(), result.isError, result.era]).toEqual([bytes, true, 'modern']);
  });

  test('D-55 carries an object, its trace and what is left of its time', async () => {
    const { tools, host, callSends } = await makeRig();
    const trace = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: 'k=v' };
    await tools.execute('nova', 'click', '{"n": 90071992547409931}', { deadlineMs: 1_500, trace });
    const { request } = callSends()[0] as ReturnType<typeof callSends>[number];
    expect(request.ttlMs).toBe(1_500);
    expect(readRequest(request.body)).toMatchObject({
      ...{ op: 'call', callKey: request.id, server: 'nova', tool: 'click', deadlineMs: 1_500, trace },
      ...{ manifestRevision: host.revision(), wantsProgress: false, isCallersKey: false },
      args: Buffer.from('{"n": 90071992547409931}'),
    });
  });

  test.each([
    ['a list', [1]],
    ['the text of a list', '[1]'],
    ['text that closes our bracket', '{},"tool":"other"'],
    ['nothing', null],
    ['a circle', circle()],
  ])('D-55 with %s for arguments is refused before anything is sent', async (_what, args) => {
    const { tools, callSends } = await makeRig();
    expect(await outcomeOf(tools.execute('nova', 'click', args as never))).toBe('invalid_arguments not_executed');
    expect(callSends()).toEqual([]);
  });
});

function circle(): Record<string, unknown> {
  const round: Record<string, unknown> = {};
  round.self = round;
  return round;
}

describe('the key of a call', () => {
  test('D-41 is made once, and the tool runs once, though the connection is lost after it ran', async () => {
    const { tools, host, broker, callSends, clock } = await makeRig();
    broker.dropReplies();
    const call = watched(tools.execute('nova', 'click', { n: 1 }));
    await clock.advanceAsync(0);
    expect([host.ran.length, call.outcome]).toEqual([1, undefined]);
    broker.cut(mailbox);
    await clock.advanceAsync(5_000);
    expect(call.outcome).toBe('click {"n":1}');
    expect(host.ran).toHaveLength(1);
    expect(new Set(callSends().map(({ request }) => request.id)).size).toBe(1);
  });

  test('D-41 is kept when the receipt is lost, and the time that is left is told anew', async () => {
    const { tools, host, broker, callSends, clock } = await makeRig();
    broker.holdsReceipts = true;
    broker.holdsReplies = true;
    const call = watched(tools.execute('nova', 'click', {}, { deadlineMs: 30_000 }));
    await clock.advanceAsync(1_000);
    broker.cut(mailbox);
    broker.holdsReceipts = false;
    await clock.advanceAsync(5_000);
    expect(callSends()).toHaveLength(2);
    const [first, again] = callSends().map(({ request }) => readRequest(request.body));
    if (first?.op !== 'call' || again?.op !== 'call') throw new Error('not two calls');
    expect(again.callKey).toBe(first.callKey);
    expect(first.deadlineMs).toBe(30_000);
    expect(again.deadlineMs).toBeLessThan(29_000);
    expect(again.deadlineMs).toBe(callSends()[1]?.request.ttlMs);
    broker.releaseReplies();
    await clock.advanceAsync(0);
    expect([call.outcome, host.ran.length]).toEqual(['click {}', 1]);
  });

  test.each(['order-7', 'orders/7 ü', 'x'.repeat(129)])(
    'that a caller gives (%s) goes on the wire as a name, and as the caller’s own',
    async (idempotencyKey) => {
      const { tools, callSends, host } = await makeRig();
      await tools.execute('nova', 'click', {}, { idempotencyKey });
      await tools.execute('nova', 'click', {}, { idempotencyKey });
      const requests = callSends().map(({ request }) => readRequest(request.body));
      expect(requests).toMatchObject([{ isCallersKey: true }, { isCallersKey: true }]);
      const keys = callSends().map(({ request }) => request.id);
      expect(new Set(keys).size).toBe(1);
      expect(keys[0]).toMatch(/^[A-Za-z0-9_-]{1,128}$/);
      if (/^[\w-]{1,128}$/.test(idempotencyKey)) expect(keys[0]).toBe(idempotencyKey);
      expect(host.ran).toHaveLength(1);
    },
  );

  test('that two callers give at once is one request, cancelled when both are gone', async () => {
    const { tools, host, callSends, settle, clock } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const abort = new AbortController();
    const shared = { idempotencyKey: 'k' };
    const first = watched(tools.execute('nova', 'click', {}, { ...shared, signal: abort.signal }));
    const second = watched(tools.execute('nova', 'click', {}, { ...shared, deadlineMs: 2_000 }));
    const other = watched(tools.execute('nova', 'click', { other: 1 }, shared));
    await settle();
    expect([callSends().length, other.outcome]).toEqual([1, 'key_conflict not_executed']);
    abort.abort();
    await settle();
    expect([first.outcome, second.outcome, host.cancelled]).toEqual(['cancelled uncertain', undefined, []]);
    await clock.advanceAsync(2_000);
    expect([second.outcome, host.cancelled]).toEqual(['timeout uncertain', [`${mailbox}/k`]]);
  });
});

describe('what is known of a call that failed', () => {
  test('is that it was not run when it was never sent', async () => {
    const { tools, broker, callSends, clock } = await makeRig();
    broker.outage = new HostError('connect_failed', 'down');
    broker.cut(mailbox);
    await clock.advanceAsync(0);
    const call = watched(tools.execute('nova', 'click', {}, { deadlineMs: 3_000 }));
    await clock.advanceAsync(3_000);
    expect([call.outcome, callSends(), broker.cancels]).toEqual(['timeout not_executed', [], []]);
  });

  test('is that it was not run when the broker refused it, and its reason', async () => {
    const { tools, broker, callSends } = await makeRig();
    broker.refuseNextSend(new HostError('overloaded', 'the mailbox is full', { execution: 'not_executed' }));
    const error = await tools.execute('nova', 'click', {}).catch((caught: HostError) => caught);
    expect(error).toMatchObject({ code: 'overloaded', retryable: true, details: { tool: 'click' } });
    expect(callSends()).toHaveLength(1);
  });

  test('is nothing when a receipt did not come: it is sent again under its key', async () => {
    const { tools, host, broker, callSends, clock } = await makeRig();
    broker.refuseNextSend(new HostError('timeout', 'no receipt', { execution: 'uncertain' }));
    const call = watched(tools.execute('nova', 'click', {}));
    await clock.advanceAsync(0);
    expect([call.outcome, host.ran.length]).toEqual([undefined, 0]);
    await clock.advanceAsync(1_000);
    expect([call.outcome, host.ran.length, callSends().length]).toEqual(['click {}', 1, 2]);
  });

  test('is what the host said, code and facts', async () => {
    const { tools, host } = await makeRig();
    host.onCall = () => {
      throw new HostError('circuit_open', "server 'nova' is unreachable", {
        server: 'nova',
        retryAfterMs: 250,
        hint: 'wait',
      });
    };
    const error = await tools.execute('nova', 'click', {}).catch((caught: HostError) => caught);
    expect(error).toMatchObject({
      ...{ code: 'circuit_open', message: "server 'nova' is unreachable", hint: 'wait', retryable: true },
      details: { server: 'nova', retryAfterMs: 250 },
    });
  });

  test('is nothing when the worker was closed over it', async () => {
    const { tools, host, settle } = await makeRig();
    host.onCall = () => new Promise(() => {});
    const call = watched(tools.execute('nova', 'click', {}));
    await settle();
    await tools.close();
    await settle();
    expect(call.outcome).toBe('cancelled uncertain');
    expect(host.cancelled).toEqual([`${mailbox}/${host.ran[0]?.key}`]);
    expect(await outcomeOf(tools.execute('nova', 'click', {}))).toBe('cancelled not_executed');
    expect(tools.status()).toMatchObject({ state: 'closed', inFlight: 0 });
  });

  test('is nothing when the reply cannot be read', async () => {
    const { tools, host } = await makeRig();
    host.onCall = () => '[]';
    expect(await outcomeOf(tools.execute('nova', 'click', {}))).toBe('protocol_error uncertain');
  });
});

describe('a worker', () => {
  test('tells of progress to whoever asked for it, while the call is under way', async () => {
    const { tools, host, callSends, settle } = await makeRig();
    const gate = deferredText();
    host.onCall = () => gate.promise;
    const heard: string[] = [];
    const call = tools.execute('nova', 'click', {}, { onProgress: (params) => void heard.push(`${params}`) });
    await settle();
    const key = callSends()[0]?.request.id as string;
    expect(readRequest(callSends()[0]?.request.body as Buffer)).toMatchObject({ wantsProgress: true });
    host.progress(mailbox, key, { progress: 1 });
    host.progress(mailbox, 'another', { progress: 9 });
    await settle();
    gate.resolve(text('done'));
    expect(await outcomeOf(call)).toBe('done');
    host.progress(mailbox, key, { progress: 2 });
    await settle();
    expect(heard).toEqual(['{"progress":1}']);
  });

  test('has at most 1,024 calls under way, and takes more when some are over', async () => {
    const { tools, host, settle } = await makeRig({ broker: { window: 2_000 } });
    const gate = deferredText();
    host.onCall = () => gate.promise;
    const calls = Array.from({ length: 1_024 }, () => outcomeOf(tools.execute('nova', 'click', {})));
    expect(await outcomeOf(tools.execute('nova', 'click', {}))).toBe('overloaded not_executed');
    await settle();
    gate.resolve(text('done'));
    expect(new Set(await Promise.all(calls))).toEqual(new Set(['done']));
    expect(await outcomeOf(tools.execute('nova', 'click', {}))).toBe('done');
  });

  test('asks which server is meant where several have the tool', async () => {
    const { tools, host } = await makeRig({ host: { tools: ['a/run', 'b/run', 'b/other'] } });
    expect(await outcomeOf(tools.execute(undefined, 'run', {}))).toBe('invalid_request not_executed');
    expect(await outcomeOf(tools.execute('b', 'run', {}))).toBe('run {}');
    expect(await outcomeOf(tools.execute(undefined, 'other', {}))).toBe('other {}');
    expect(host.ran.map(({ server }) => server)).toEqual(['b', 'b']);
  });
});
