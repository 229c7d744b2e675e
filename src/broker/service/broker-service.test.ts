import { describe, expect, test } from 'vitest';
import { gate, ServiceRig, settled } from '../../../test/fakes/service-rig.js';
import { HostError } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import { readManifestBody } from '../protocol/reply-body.js';

const three = { nova: { tools: ['fetch_url', 'nova_click', 'nova_screenshot'] } };
const anyone = { isRolelessAllowed: () => true };

/** Allows the role `role` only the tool `tool`, and other roles everything. */
const only = (role: string, tool: string) => (principal: { role?: string | undefined }, _: string, name?: string) =>
  principal.role !== role || name === undefined || name === tool;

describe('what a role may use', () => {
  test('AC-P1 a listed role sees its tools; an unlisted role, and a worker without a role, see all where that is allowed', async () => {
    const rig = new ServiceRig(three, anyone);
    rig.host.allow(only('researcher', 'fetch_url'));
    expect(await rig.worker('w1', 'researcher').tools()).toEqual(['fetch_url']);
    expect(await rig.worker('w2', 'operator').tools()).toHaveLength(3);
    const none = rig.worker('w3');
    none.now = { name: 'w3', epoch: 'e1', role: undefined };
    expect(await none.tools()).toHaveLength(3);
  });

  test('AC-P2 a tool that the role may not use is not called, and the refusal names it', async () => {
    const rig = new ServiceRig(three);
    rig.host.allow(only('researcher', 'fetch_url'));
    const worker = rig.worker('w1', 'researcher');
    await worker.call('k1', 'nova_screenshot');
    const error = worker.refusals.get('k1');
    expect(error).toMatchObject({ code: 'denied', details: { tool: 'nova_screenshot', execution: 'not_executed' } });
    expect(error?.message).toMatch(/nova_screenshot.*not allowed/);
    expect(rig.host.calls).toHaveLength(0);
    await worker.call('k2', 'fetch_url');
    expect(worker.outcome('k2')).toBe('{"content":[]}');
    expect(rig.events).toMatchObject([{ kind: 'denied', worker: 'w1', tool: 'nova_screenshot' }]);
    expect(rig.service.status()).toMatchObject({ calls: 2, denied: 1, refused: 1 });
  });

  test('AC-P3 a role with nothing has an empty manifest', async () => {
    const rig = new ServiceRig(three);
    rig.host.allow(() => false);
    expect(await rig.worker('w1', 'sandbox').tools()).toEqual([]);
  });

  test('D-46 a worker without a role sees and runs nothing, unless the configuration allows it', async () => {
    const rig = new ServiceRig(three);
    const worker = rig.worker();
    worker.now = { name: 'w1', epoch: 'e1', role: undefined };
    expect(await worker.tools()).toEqual([]);
    await worker.call('k1', 'fetch_url');
    expect(worker.answers.get('k1')).toBe('denied');
    expect(rig.host.calls).toHaveLength(0);
    expect(rig.events.map(({ kind }) => kind)).toEqual(['unlisted_role', 'denied']);
  });

  test('AC-X4 a changed role applies to calls that begin later, and its workers are notified of the new manifest', async () => {
    const rig = new ServiceRig(three, { runningPerWorker: 1 });
    const worker = rig.worker('w1', 'researcher');
    await worker.tools();
    const tool = gate<string>();
    rig.host.onCall = () => tool.promise;
    await worker.call('k1', 'nova_click');
    await worker.call('k2', 'nova_click');
    rig.host.allow(only('researcher', 'fetch_url'));
    // The host reports it, as for a changed server.
    rig.host.setState('nova', 'ready');
    await rig.clock.advanceAsync(50);
    expect(worker.revisions()).toHaveLength(1);
    tool.resolve('{"n":1}');
    await settled();
    expect(worker.outcome('k1')).toBe('{"n":1}');
    expect(worker.outcome('k2')).toMatchObject({ code: 'denied' });
    expect(rig.host.calls).toHaveLength(1);
  });

  test('a worker whose role is not listed gets a manifest with this reason, and the status names the role', async () => {
    const rig = new ServiceRig(three);
    Object.assign(rig.host, { isUnlistedRole: () => true });
    rig.host.allow(() => false);
    const worker = rig.worker('w1', 'typo');
    const { denied, tools } = readManifestBody(await rig.service.manifest(worker));
    expect(tools).toEqual([]);
    expect(denied).toMatchObject({ code: 'denied', details: { reason: 'unlisted_role' } });
    await rig.service.manifest(worker);
    expect(rig.events.filter(({ kind }) => kind === 'unlisted_role')).toHaveLength(1);
    expect(rig.service.status().unlistedRoles).toEqual(['typo']);
  });
});

describe('calls', () => {
  test('AC-P5 each of eight at once gets the answer to its own arguments', async () => {
    const rig = new ServiceRig(three);
    rig.host.onCall = ({ args }) => `{"echo":${args}}`;
    const worker = rig.worker();
    await Promise.all(Array.from({ length: 8 }, (_, n) => worker.call(`k${n}`, 'nova_click', { n })));
    for (let n = 0; n < 8; n++) expect(worker.outcome(`k${n}`)).toBe(`{"echo":{"n":${n}}}`);
  });

  test('AC-P6 four that are sent together run at the same time', async () => {
    const rig = new ServiceRig(three);
    const tool = gate<string>();
    rig.host.onCall = () => tool.promise;
    const worker = rig.worker();
    for (let n = 0; n < 4; n++) await worker.call(`k${n}`, 'nova_click');
    expect(rig.host.calls).toHaveLength(4);
    tool.resolve('{}');
    await settled();
    expect(rig.service.status()).toMatchObject({ running: 0, waiting: 0, calls: 4 });
  });

  test('D-55 carry principal, instance, trace and deadline to the host', async () => {
    const rig = new ServiceRig(three);
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    await rig.worker().call('k1', 'nova_click', { mark: 7 }, { trace: { traceparent, tracestate: undefined } });
    const [{ options, args, server, tool } = {} as never] = rig.host.calls;
    expect({ server, tool, args }).toEqual({ server: 'nova', tool: 'nova_click', args: '{"mark":7}' });
    expect(options).toMatchObject({
      ...{ principal: { id: 'w1', role: 'r1' }, instance: '6:worker2:w1', deadlineMs: 9_990 },
      meta: `"traceparent":"${traceparent}"`,
    });
  });

  test('D-49 return results and numbers unchanged to the digit; a result that is too large becomes an error that says so', async () => {
    const rig = new ServiceRig(three);
    const worker = rig.worker();
    rig.host.onCall = () => '{"n":12345678901234567890,"f":1.0}';
    await worker.call('k1', 'nova_click');
    expect(worker.outcome('k1')).toBe('{"n":12345678901234567890,"f":1.0}');
    rig.host.onCall = () => `{"s":"${'x'.repeat(brokerLimits.replyBytes)}"}`;
    await worker.call('k2', 'nova_click');
    expect(worker.outcome('k2')).toMatchObject({ code: 'result_too_large', details: { execution: 'uncertain' } });
  });

  test('of a tool that two servers have must name the server, or use the name `server__tool`', async () => {
    const rig = new ServiceRig({ a: { tools: ['echo'] }, b: { tools: ['echo'] } });
    rig.host.onCall = ({ server }) => `{"server":"${server}"}`;
    const worker = rig.worker();
    await worker.call('k1', 'echo');
    expect(worker.refusals.get('k1')).toMatchObject({ code: 'invalid_request', details: { field: 'server' } });
    await worker.call('k2', 'echo', {}, { server: 'b' });
    await worker.call('k3', 'a__echo');
    expect([worker.outcome('k2'), worker.outcome('k3')]).toEqual(['{"server":"b"}', '{"server":"a"}']);
    await worker.call('k4', 'nothing');
    expect(worker.answers.get('k4')).toBe('tool_not_found');
  });

  test('send progress, but none of more than 64 KiB', async () => {
    const rig = new ServiceRig(three);
    rig.host.onCall = ({ options }) => {
      options.onProgress?.(Buffer.from('{"progress":1}'));
      options.onProgress?.(Buffer.alloc(brokerLimits.progressBytes + 1));
      return '{}';
    };
    const worker = rig.worker();
    await worker.call('k1', 'nova_click', {}, { wantsProgress: true });
    expect(worker.heard.map(({ op }) => op)).toEqual(['progress', 'reply']);
    await worker.call('k2', 'nova_click');
    expect(rig.host.calls[1]?.options.onProgress).toBeUndefined();
  });

  test('with an old manifest cause a message about the new one', async () => {
    const rig = new ServiceRig(three);
    const worker = rig.worker();
    await worker.call('k1', 'nova_click', {}, { manifestRevision: 'old' });
    expect(worker.revisions()).toHaveLength(1);
    await worker.call('k2', 'nova_click', {}, { manifestRevision: worker.revisions()[0] });
    expect(worker.revisions()).toHaveLength(1);
  });

  test('D-42 after their deadline are refused and not run', async () => {
    const rig = new ServiceRig(three);
    const worker = rig.worker();
    await worker.call('k1', 'nova_click', {}, { deadlineMs: 0 });
    expect(worker.answers.get('k1')).toBe('expired');
    expect(rig.host.calls).toHaveLength(0);
    expect(rig.service.status()).toMatchObject({ expired: 1 });
  });

  test('D-44 of one worker past its bound are refused, and those of another begin at once', async () => {
    const rig = new ServiceRig(three, { runningPerWorker: 2 });
    rig.host.onCall = () => new Promise(() => {});
    const [flood, other] = [rig.worker('flood'), rig.worker('other')];
    for (let n = 0; n < 300; n++) await flood.call(`k${n}`, 'nova_click');
    expect(flood.refusals.size).toBe(300 - brokerLimits.callsPerWorker);
    for (const error of flood.refusals.values())
      expect(error).toMatchObject({ code: 'overloaded', details: { retryAfterMs: 1_000, execution: 'not_executed' } });
    await other.call('k', 'nova_click');
    expect(rig.host.calls).toHaveLength(3);
    expect(rig.service.status()).toMatchObject({ running: 3, waiting: 254 });
  });

  test('D-44 whose arguments would fill the memory are refused before they run, until earlier calls of the worker end', async () => {
    const rig = new ServiceRig(three);
    const ends: (() => void)[] = [];
    rig.host.onCall = () => new Promise((resolve) => void ends.push(() => resolve('{"content":[]}')));
    const [flood, other] = [rig.worker('flood'), rig.worker('other')];
    const args = Buffer.from(`{"large":"${'x'.repeat(4 * 1024 * 1024 - 12)}"}`);
    for (let n = 0; n < 20; n++) await flood.call(`k${n}`, 'nova_click', {}, { args });
    expect([...flood.refusals.keys()]).toEqual(['k16', 'k17', 'k18', 'k19']);
    expect(flood.refusals.get('k16')).toMatchObject({
      code: 'overloaded',
      details: { reason: 'worker_bytes', limit: 64 * 1024 * 1024, retryAfterMs: 1_000, execution: 'not_executed' },
    });
    await other.call('k', 'nova_click', {}, { args });
    expect(rig.host.calls).toHaveLength(17);
    // The arguments of a call with an outcome are no longer in memory.
    ends[0]?.();
    await settled();
    await flood.call('again', 'nova_click', {}, { args });
    expect(flood.answers.get('again')).toBe('receipt');
    expect(rig.host.calls).toHaveLength(18);
  });

  test('D-44 that must not run count for the memory of arguments too, until their refusal is recorded', async () => {
    const rig = new ServiceRig(three);
    // A disk that hangs.
    rig.log.receive = () => new Promise(() => {});
    const worker = rig.worker();
    const args = Buffer.from(`{"large":"${'x'.repeat(4 * 1024 * 1024 - 12)}"}`);
    const again = { args, sentBefore: { storeId: rig.log.storeId, hasReceipt: false } };
    for (let n = 0; n < 20; n++) await worker.call(`k${n}`, 'none_such', {}, again);
    expect([...worker.refusals.keys()]).toEqual(['k16', 'k17', 'k18', 'k19']);
    expect(worker.refusals.get('k16')).toMatchObject({ details: { reason: 'worker_bytes' } });
  });

  test('of a host that throws are answered, and the text of its error is not sent to the worker', async () => {
    const rig = new ServiceRig(three);
    rig.host.onCall = () => Promise.reject(new Error('secret'));
    const worker = rig.worker();
    await worker.call('k1', 'nova_click');
    expect(JSON.stringify(worker.outcome('k1'))).toMatch(/protocol_error.*uncertain/);
    expect(JSON.stringify(worker.outcome('k1'))).not.toMatch(/secret/);
    expect(rig.events).toMatchObject([{ kind: 'problem' }]);
  });
});

describe('a cancel', () => {
  test('D-45 reaches the running call, and ends the one that waits', async () => {
    const rig = new ServiceRig(three, { runningPerWorker: 1 });
    rig.host.onCall = ({ options }) =>
      new Promise((_resolve, reject) => {
        options.signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'cancelled')));
      });
    const worker = rig.worker();
    await worker.call('k1', 'nova_click');
    await worker.call('k2', 'nova_click');
    expect(rig.service.cancel(worker, 'k2')).toBe(true);
    await settled();
    expect(worker.outcome('k2')).toMatchObject({ code: 'cancelled', details: { execution: 'not_executed' } });
    expect(rig.service.cancel(worker, 'k1')).toBe(true);
    await settled();
    expect(worker.outcome('k1')).toMatchObject({ code: 'cancelled' });
    expect(rig.host.calls).toHaveLength(1);
  });

  test('D-45 that overtakes its call is remembered for 5 s, and only for that worker', async () => {
    const rig = new ServiceRig(three);
    const [worker, other] = [rig.worker('w1'), rig.worker('w2')];
    for (const key of ['k1', 'k2', 'k3']) expect(rig.service.cancel(worker, key)).toBe(false);
    await worker.call('k1', 'nova_click');
    await other.call('k2', 'nova_click');
    await worker.call('k2', 'nova_click', {}, { sentBefore: { storeId: rig.log.storeId, hasReceipt: false } });
    await rig.clock.advanceAsync(5_001);
    await worker.call('k3', 'nova_click');
    expect(worker.refusals.get('k1')).toMatchObject({ code: 'cancelled' });
    expect(worker.outcome('k2')).toMatchObject({ code: 'cancelled' });
    expect([other.outcome('k2'), worker.outcome('k3')]).toEqual(['{"content":[]}', '{"content":[]}']);
    expect(rig.host.calls).toHaveLength(2);
  });
});

test("a cancel by one process does not end the call of another process with the same caller's key", async () => {
  const rig = new ServiceRig(three);
  const [one, other] = [rig.worker('w1', 'r1', 'p1'), rig.worker('w1', 'r1', 'p2')];
  const own = { isCallersKey: true };
  expect(rig.service.cancel(one, 'k1')).toBe(false);
  await other.call('k1', 'nova_click', {}, own);
  expect(other.outcome('k1')).toBe('{"content":[]}');
  const tool = gate<string>();
  rig.host.onCall = () => tool.promise;
  await one.call('k2', 'nova_click', {}, own);
  await other.call('k2', 'nova_click', {}, own);
  expect(rig.service.cancel(one, 'k2')).toBe(true);
  tool.resolve('{"n":2}');
  await settled();
  expect(other.outcome('k2')).toBe('{"n":2}');
  expect(rig.host.calls).toHaveLength(2);
});

describe('a call that comes again', () => {
  test('D-40 while it runs gets the one outcome', async () => {
    const rig = new ServiceRig(three);
    const tool = gate<string>();
    rig.host.onCall = () => tool.promise;
    const worker = rig.worker();
    await worker.call('k1', 'nova_click');
    await worker.call('k1', 'nova_click', {}, { sentBefore: { storeId: rig.log.storeId, hasReceipt: false } });
    tool.resolve('{"n":1}');
    await settled();
    expect(worker.heard.filter(({ op }) => op === 'reply')).toHaveLength(1);
    expect(rig.host.calls).toHaveLength(1);
    expect(rig.service.status()).toMatchObject({ repeated: 1 });
  });

  test('D-40 after its host died is uncertain, unless its tool may be repeated', async () => {
    const rig = new ServiceRig(three);
    rig.host.onCall = () => new Promise(() => {});
    rig.host.repeatable.add('nova/fetch_url');
    const worker = rig.worker();
    await worker.call('k1', 'nova_click');
    await worker.call('k2', 'fetch_url');
    const sentBefore = { storeId: rig.log.storeId, hasReceipt: true };
    await rig.restart();
    rig.host.onCall = () => '{"again":1}';
    await worker.call('k1', 'nova_click', {}, { sentBefore });
    await worker.call('k2', 'fetch_url', {}, { sentBefore });
    expect(worker.outcome('k1')).toMatchObject({ code: 'outcome_uncertain', details: { reason: 'host_lost' } });
    expect(worker.outcome('k2')).toBe('{"again":1}');
    expect(rig.service.status()).toMatchObject({ uncertain: 1 });
    expect(rig.events).toMatchObject([{ kind: 'uncertain', worker: 'w1', key: 'k1' }]);
  });

  test('D-40 after its host died is reported as uncertain if it must not run any more by then', async () => {
    const rig = new ServiceRig(three);
    rig.host.onCall = () => new Promise(() => {});
    rig.host.repeatable.add('nova/fetch_url');
    const worker = rig.worker();
    await worker.call('k1', 'fetch_url');
    await rig.restart();
    const { begin } = rig.log;
    rig.log.begin = (...args) => {
      rig.host.allow(() => false);
      return begin.apply(rig.log, args);
    };
    await worker.call('k1', 'fetch_url', {}, { sentBefore: { storeId: rig.log.storeId, hasReceipt: true } });
    expect(worker.outcome('k1')).toMatchObject({ code: 'outcome_uncertain', details: { reason: 'host_lost' } });
    expect(rig.events).toContainEqual({ kind: 'uncertain', worker: 'w1', key: 'k1' });
  });

  test('B11 with other arguments is refused, and the first outcome stays', async () => {
    const rig = new ServiceRig(three);
    rig.host.onCall = ({ args }) => args;
    const worker = rig.worker();
    await worker.call('own', 'nova_click', { n: 1 }, { isCallersKey: true });
    await worker.call('own', 'nova_click', { n: 2 }, { isCallersKey: true });
    expect(worker.refusals.get('own')).toMatchObject({ code: 'key_conflict', details: { execution: 'not_executed' } });
    worker.acknowledge('own');
    await worker.call('own', 'nova_click', { n: 1 }, { isCallersKey: true });
    expect(worker.outcome('own')).toBe('{"n":1}');
    expect(rig.host.calls).toHaveLength(1);
  });

  test('AC-BR14 from another process of the same worker is one call, and both get the outcome', async () => {
    const rig = new ServiceRig(three);
    const tool = gate<string>();
    rig.host.onCall = () => tool.promise;
    const [one, two] = [rig.worker('w1', 'r1', 'one'), rig.worker('w1', 'r1', 'two')];
    await one.call('own', 'nova_click', {}, { isCallersKey: true });
    await two.call('own', 'nova_click', {}, { isCallersKey: true });
    await one.call('mine', 'nova_click');
    tool.resolve('{"n":1}');
    await settled();
    expect([one.outcome('own'), two.outcome('own'), two.outcome('mine')]).toEqual(['{"n":1}', '{"n":1}', undefined]);
  });
});

describe('a question about calls', () => {
  test('AC-BR2 is answered with the replies that were missed, and with what became of the rest', async () => {
    const rig = new ServiceRig(three, { runningPerWorker: 1 });
    const worker = rig.worker();
    worker.isReading = false;
    await worker.call('done', 'nova_click');
    rig.host.onCall = () => new Promise(() => {});
    await worker.call('runs', 'nova_click');
    await worker.call('waits', 'nova_click');
    worker.isReading = true;
    expect(await rig.service.ask(worker, ['done', 'runs', 'waits', 'unknown'])).toEqual({
      running: ['runs', 'waits'],
      resend: ['unknown'],
    });
    expect(worker.outcome('done')).toBe('{"content":[]}');
    await rig.restart();
    expect(await rig.service.ask(worker, ['done', 'runs', 'waits'])).toEqual({
      running: [],
      resend: ['runs', 'waits'],
    });
    worker.acknowledge('done');
    expect(await rig.service.ask(worker, ['done'])).toEqual({ running: [], resend: ['done'] });
  });

  test('is not answered with more than the worker reads', async () => {
    const rig = new ServiceRig(three);
    const worker = rig.worker();
    const keys = Array.from({ length: 40 }, (_, n) => `k${n}`);
    for (const key of keys) await worker.call(key, 'nova_click');
    worker.heard.length = 0;
    worker.isReading = false;
    let asked = 0;
    const { find } = rig.log;
    rig.log.find = (id) => {
      asked++;
      return find.call(rig.log, id);
    };
    expect(await rig.service.ask(worker, keys)).toEqual({ running: keys, resend: [] });
    expect(asked).toBeLessThan(10);
  });
});
