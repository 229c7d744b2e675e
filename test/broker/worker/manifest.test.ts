/** What a worker knows of the tools of its host: learned, learned anew, and never taken to be empty by mistake. */
import { describe, expect, test } from 'vitest';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import { HostError } from '../../../src/kernel/errors.js';
import { makeRig, outcomeOf, type RigOptions, unconnected, watched } from './worker-rig.js';

const names = ({ tools }: { tools: { list(): readonly { name: string }[] } }) => tools.list().map(({ name }) => name);
const dialects: [string, RigOptions][] = [
  ['in our words', {}],
  ['in the older ones', { compat: true }],
];
const roles = ({ role }: { role: string | undefined }) =>
  role === 'researcher' ? ['web/fetch_url'] : ['web/fetch_url', 'nova/nova_screenshot', 'nova/nova_click'];

describe('the first manifest', () => {
  test.each(dialects)(
    'AC-P9 is that of the role the credential has; what is not in it is not asked for, %s',
    async (_in, options) => {
      const researcher = await makeRig({ ...options, role: 'researcher', host: { tools: roles } });
      expect(names(researcher)).toEqual(['fetch_url']);
      expect(await outcomeOf(researcher.tools.execute(undefined, 'nova_screenshot', {}))).toBe(
        'tool_not_found not_executed',
      );
      expect(researcher.callSends()).toEqual([]);
      const nobody = await makeRig({ ...options, host: { tools: roles } });
      expect(names(nobody)).toEqual(['fetch_url', 'nova_screenshot', 'nova_click']);
    },
  );

  test.each([
    ['an error', new HostError('protocol_error', 'bad mcp request')],
    ['a body that is no JSON', '{"v":1,"manifest":'],
    ['a body with nothing in it', '{"v":1}'],
    ['a result', '{"v":1,"era":"legacy","result":{"content":[]}}'],
    ['a version that nobody knows', '{"v":2,"manifest":{"revision":"r","tools":[]}}'],
    ['a tool without a name', '{"v":1,"manifest":{"revision":"r","tools":[{"server":"s","tool":{}}]}}'],
  ])('D-48 that is %s is an error of connecting, not an empty list', async (_what, said) => {
    const rig = unconnected();
    rig.host.onManifest = () => said;
    await rig.host.connect();
    const ready = rig.tools.ready(30_000).catch((error: HostError) => error.code);
    await rig.settle();
    expect(await ready).toBe('protocol_error');
    expect(rig.tools.status()).toMatchObject({ state: 'connecting', tools: 0, revision: undefined });
  });

  test('D-48 is asked for until there is a host, within the time of whoever connects', async () => {
    const { broker, host, clock } = unconnected();
    const open = broker.openWorker({ mailbox: 'w2', role: undefined });
    const early = connectWorker({ open, clock, connectMs: 15_000 }).catch((error: HostError) => error);
    await clock.advanceAsync(15_000);
    expect(await early).toMatchObject({ code: 'connect_failed', details: { execution: 'not_executed' } });
    expect(broker.connectedWorkers).not.toContain('w2');
    const later = connectWorker({ open, clock, connectMs: 60_000 });
    await clock.advanceAsync(25_000);
    await host.connect();
    await clock.advanceAsync(20_000);
    const tools = await later;
    expect(tools.toolCount).toBe(1);
    await tools.close();
  });

  test('D-48 that cannot be given at the moment is asked for again', async () => {
    const rig = unconnected();
    rig.host.onManifest = () => new HostError('overloaded', 'busy', { execution: 'not_executed' });
    await rig.host.connect();
    const ready = rig.tools.ready(30_000);
    await rig.clock.advanceAsync(3_000);
    expect(rig.tools.status()).toMatchObject({ state: 'connecting', lastError: { code: 'overloaded' } });
    rig.host.onManifest = undefined;
    await rig.clock.advanceAsync(2_000);
    await ready;
    expect(names(rig)).toEqual(['click']);
  });

  test('is waited for by calls that come before it, with their own time', async () => {
    const rig = unconnected();
    const early = watched(rig.tools.execute('nova', 'click', {}, { deadlineMs: 1_000 }));
    const patient = watched(rig.tools.execute('nova', 'click', {}, { deadlineMs: 30_000 }));
    await rig.clock.advanceAsync(1_000);
    expect([early.outcome, patient.outcome]).toEqual(['connect_failed not_executed', undefined]);
    await rig.host.connect();
    await rig.clock.advanceAsync(15_000);
    expect(patient.outcome).toBe('click {}');
  });

  test('is read from where it is kept, with no host about', async () => {
    const rig = unconnected({ broker: { keepsManifests: true }, role: 'r' });
    const keeper = await rig.broker.openHost({ deliver: () => {}, cancelled: () => {} }, new AbortController().signal);
    const kept = '{"v":1,"manifest":{"revision":"k","tools":[{"server":"s","name":"kept","tool":{"name":"kept"}}]}}';
    await keeper.keepManifest?.('r', Buffer.from(kept));
    await keeper.close();
    await rig.settle();
    expect([names(rig), rig.broker.sends]).toEqual([['kept'], []]);
  });
});

describe('a manifest that changed', () => {
  test('D-48 is learned when the host tells of it, and told once', async () => {
    const rig = await makeRig();
    const told: string[] = [];
    rig.tools.on('manifest', ({ revision, tools }) => void told.push(`${revision} ${tools}`));
    rig.host.change(['nova/click', 'nova/type']);
    await rig.settle();
    expect([names(rig), told]).toEqual([['click', 'type'], ['r1-2 2']]);
    expect(await outcomeOf(rig.tools.execute('nova', 'type', {}))).toBe('type {}');
  });

  test('D-48 several times in a row is asked for once at a time, and in the end known', async () => {
    const rig = await makeRig();
    const asked = rig.host.manifestsAsked;
    for (let n = 1; n <= 50; n++) {
      rig.host.change(Array.from({ length: n }, (_, i) => `nova/t${i}`));
      await Promise.resolve();
    }
    await rig.clock.advanceAsync(1_000);
    expect(rig.tools.toolCount).toBe(50);
    expect(rig.host.manifestsAsked - asked).toBeLessThanOrEqual(3);
  });

  test('D-48 to what is known already is not asked for', async () => {
    const rig = await makeRig();
    const asked = rig.host.manifestsAsked;
    rig.host.announce();
    await rig.clock.advanceAsync(1_000);
    expect(rig.host.manifestsAsked).toBe(asked);
  });

  test('D-48 unnoticed is found when a tool is asked for that nobody knows, once in 5 s for all callers', async () => {
    const rig = await makeRig();
    await rig.clock.advanceAsync(5_000);
    rig.host.change(['nova/click', 'nova/type'], false);
    const asked = rig.host.manifestsAsked;
    const calls = ['type', 'none', 'type', 'never'].map((tool) => outcomeOf(rig.tools.execute('nova', tool, {})));
    await rig.settle();
    const missing = 'tool_not_found not_executed';
    expect(await Promise.all(calls)).toEqual(['type {}', missing, 'type {}', missing]);
    expect(rig.host.manifestsAsked).toBe(asked + 1);
    rig.host.change(['nova/click', 'nova/type', 'nova/new'], false);
    expect(await outcomeOf(rig.tools.execute('nova', 'new', {}))).toBe(missing);
    await rig.clock.advanceAsync(5_000);
    expect(await outcomeOf(rig.tools.execute('nova', 'new', {}))).toBe('new {}');
    expect(rig.host.manifestsAsked).toBe(asked + 2);
    expect(rig.callSends()).toHaveLength(3);
  });

  test('D-48 is learned when the host says that a call goes by an older one', async () => {
    const rig = await makeRig();
    rig.host.change(['nova/type'], false);
    rig.host.onCall = () => {
      throw new HostError('tool_not_found', 'gone', { execution: 'not_executed' });
    };
    expect(await outcomeOf(rig.tools.execute('nova', 'click', {}))).toBe('tool_not_found not_executed');
    await rig.settle();
    expect(names(rig)).toEqual(['type']);
  });

  test('D-48 and cannot be read leaves the one before, and is asked for again', async () => {
    const rig = await makeRig();
    rig.host.onManifest = () => '{"v":1,"manifest":{"revision":"bad","tools":{}}}';
    rig.host.change(['nova/type']);
    await rig.clock.advanceAsync(1_000);
    expect([names(rig), rig.tools.status().lastError?.code, rig.tools.status().state]).toEqual([
      ['click'],
      'protocol_error',
      'ready',
    ]);
    rig.host.onManifest = undefined;
    await rig.clock.advanceAsync(2_000);
    expect([names(rig), rig.tools.status().lastError]).toEqual([['type'], undefined]);
  });
});
