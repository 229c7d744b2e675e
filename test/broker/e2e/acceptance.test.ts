/** The acceptance cases of a proxy for workers, end to end over both engines. */
import { afterEach, describe, expect, test } from 'vitest';
import type { ServedWorkers } from '../../../src/broker/serve-workers.js';
import type { RemoteTools } from '../../../src/broker/worker/index.js';
import type { Principal } from '../../../src/policy/operation.js';
import { eventually } from '../../eventually.js';
import { FakeUpstreams } from '../../fakes/fake-upstreams.js';
import { type EngineName, engines, Rig, type Workers } from './engines.js';

const timeout = 60_000;
let rig: Rig | undefined;
afterEach(async () => {
  await rig?.close();
  rig = undefined;
}, timeout);

const roles: Readonly<Record<string, readonly string[]>> = { researcher: ['fetch_url'], sandbox: [] };
const workers: Workers = { ann: 'researcher', bob: 'operator', cid: undefined, dan: 'sandbox' };

function novaHost(): FakeUpstreams {
  const host = new FakeUpstreams({ nova: { tools: ['nova_click', 'nova_screenshot', 'fetch_url'] } });
  const allowed = ({ role }: Principal, _: string, tool: string | undefined) =>
    role === undefined || !roles[role] || tool === undefined || roles[role].includes(tool);
  host.allow(allowed);
  host.onCall = ({ tool, args }) => JSON.stringify({ content: [{ type: 'text', text: `${tool} ${args}` }] });
  return host;
}

async function open(engine: EngineName, host: FakeUpstreams, limits = {}) {
  rig = await Rig.open(engine, Object.keys(workers));
  const served = await rig.serve(host, workers, { isRolelessAllowed: () => true, limits });
  return { served, worker: (name: string) => (rig as Rig).worker(served, name) };
}

const names = (tools: RemoteTools) => tools.list().map(({ name }) => name);
const textOf = ({ bytes }: { bytes: Buffer }) => JSON.parse(bytes.toString()).content[0].text as string;

describe.each(engines)('over %s', (engine) => {
  const all = ['nova_click', 'nova_screenshot', 'fetch_url'];

  test('AC-P1 a listed role sees its tools; an unlisted role, and a worker without a role, see all where that is allowed', {
    timeout,
  }, async () => {
    const { worker } = await open(engine, novaHost());
    expect(names(await worker('ann'))).toEqual(['fetch_url']);
    expect(names(await worker('bob'))).toEqual(all);
    expect(names(await worker('cid'))).toEqual(all);
  });

  test('AC-P3 a role with an empty list may use nothing', { timeout }, async () => {
    const host = novaHost();
    const dan = await (await open(engine, host)).worker('dan');
    expect(names(dan)).toEqual([]);
    await expect(dan.execute('nova', 'fetch_url')).rejects.toThrow();
    expect(host.calls).toEqual([]);
  });

  test('AC-P9 a tool that the role does not see is not called', { timeout }, async () => {
    const host = novaHost();
    const { served, worker } = await open(engine, host);
    const ann = await worker('ann');
    await expect(ann.execute('nova', 'nova_screenshot')).rejects.toMatchObject({ code: 'tool_not_found' });
    expect([host.calls, served.status().calls]).toEqual([[], 0]);
  });

  test('AC-P2 a role may call the tools that it sees, and no others', { timeout }, async () => {
    const host = novaHost();
    const { worker } = await open(engine, host);
    const [ann, cid] = [await worker('ann'), await worker('cid')];
    await expect(ann.execute('nova', 'nova_screenshot')).rejects.toMatchObject({
      details: { tool: 'nova_screenshot' },
    });
    expect(host.calls).toEqual([]);
    expect(textOf(await ann.execute('nova', 'fetch_url'))).toBe('fetch_url {}');
    expect(textOf(await cid.execute('nova', 'nova_screenshot'))).toBe('nova_screenshot {}');
  });

  test('AC-P4 a call gets its own arguments back; an unknown tool is an error, and nothing is sent', {
    timeout,
  }, async () => {
    const host = novaHost();
    const { worker } = await open(engine, host);
    const bob = await worker('bob');
    expect(textOf(await bob.execute(undefined, 'nova_click', { mark: 7 }))).toBe('nova_click {"mark":7}');
    await expect(bob.execute('nova', 'other')).rejects.toMatchObject({ code: 'tool_not_found' });
    expect(host.calls).toHaveLength(1);
  });

  test('AC-P5 eight calls at once each get the answer to their own arguments', { timeout }, async () => {
    const { worker } = await open(engine, novaHost());
    const bob = await worker('bob');
    const marks = Array.from({ length: 8 }, (_, mark) => mark);
    const answers = await Promise.all(marks.map((mark) => bob.execute('nova', 'nova_click', { mark })));
    expect(answers.map(textOf)).toEqual(marks.map((mark) => `nova_click {"mark":${mark}}`));
  });

  test('AC-P6 four calls of one worker run at once', { timeout }, async () => {
    const host = novaHost();
    const held: (() => void)[] = [];
    host.onCall = () => new Promise((resolve) => held.push(() => resolve('{"content":[]}')));
    const { worker } = await open(engine, host);
    const bob = await worker('bob');
    const calls = Array.from({ length: 4 }, () => bob.execute('nova', 'nova_click'));
    await eventually('four at once', () => held.length === 4);
    for (const release of held) release();
    await Promise.all(calls);
  });

  test('AC-P8 a host that goes away and comes back serves the same worker; every call runs once', {
    timeout,
  }, async () => {
    const host = novaHost();
    const { served, worker } = await open(engine, host);
    const bob = await worker('bob');
    await bob.execute('nova', 'nova_click', { mark: 1 });
    const port = served.url === undefined ? undefined : Number(new URL(served.url).port);
    await served.close();
    const second = bob.execute('nova', 'nova_click', { mark: 2 }, { deadlineMs: 30_000 });
    await eventually('it waits', () => bob.status().inFlight === 1);
    await serveAgain(host, port);
    expect(textOf(await second)).toBe('nova_click {"mark":2}');
    await bob.execute('nova', 'nova_click', { mark: 3 });
    expect(host.calls.map(({ args }) => args)).toEqual(['{"mark":1}', '{"mark":2}', '{"mark":3}']);
  });

  test('AC-P7 a worker connects again as often as needed, and never after it was closed', { timeout }, async () => {
    const host = novaHost();
    let { served } = await open(engine, host);
    const port = served.url === undefined ? undefined : Number(new URL(served.url).port);
    const bob = await (rig as Rig).worker(served, 'bob');
    for (let round = 0; round < 3; round++) {
      await served.close();
      served = await serveAgain(host, port);
      await bob.execute('nova', 'nova_click', { round }, { deadlineMs: 30_000 });
    }
    await bob.close();
    await expect(bob.execute('nova', 'nova_click')).rejects.toMatchObject({ details: { reason: 'closed' } });
    expect([bob.status().state, host.calls.length]).toEqual(['closed', 3]);
  });

  test('AC-X4 a changed role applies to the next call and to waiting ones, and the worker is told', {
    timeout,
  }, async () => {
    const host = novaHost();
    const held: (() => void)[] = [];
    host.onCall = () => new Promise((resolve) => held.push(() => resolve('{"content":[]}')));
    const { served, worker } = await open(engine, host, { callsPerWorker: 1 });
    const bob = await worker('bob');
    const running = bob.execute('nova', 'nova_click', { mark: 1 });
    await eventually('the first runs', () => held.length === 1);
    const waiting = bob.execute('nova', 'nova_click', { mark: 2 }).then(
      () => 'done',
      ({ code }) => code as string,
    );
    await eventually('the second waits', () => served.status().waiting === 1);
    await served.rekey((rig as Rig).keys({ ...workers, bob: 'researcher' }));
    await eventually('the worker has its new tools', () => names(bob).join() === 'fetch_url');
    for (const release of held.splice(0)) release();
    await running;
    expect(await waiting).toBe('denied');
    expect(host.calls).toHaveLength(1);
  });

  test('AC-BR13 waiting calls of a revoked worker never run', { timeout }, async () => {
    const host = novaHost();
    const held: (() => void)[] = [];
    host.onCall = () => new Promise((resolve) => held.push(() => resolve('{"content":[]}')));
    const { served, worker } = await open(engine, host, { callsPerWorker: 1 });
    const bob = await worker('bob');
    const ends = [1, 2, 3].map((mark) =>
      bob.execute('nova', 'nova_click', { mark }, { deadlineMs: 8_000 }).then(
        () => 'done',
        ({ code }) => code as string,
      ),
    );
    await eventually('one runs and two wait', () => held.length === 1 && served.status().waiting === 2);
    await served.rekey((rig as Rig).keys({ ann: workers.ann }));
    for (const release of held.splice(0)) release();
    expect(await Promise.all(ends)).not.toContain('done');
    expect(host.calls).toHaveLength(1);
  });
});

async function serveAgain(host: FakeUpstreams, port: number | undefined): Promise<ServedWorkers> {
  const listen = port === undefined ? {} : { port };
  return (rig as Rig).serve(host, workers, { isRolelessAllowed: () => true, listen });
}
