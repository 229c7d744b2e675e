/** How a worker learns the tools of a host, and keeps them. */
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { errorBody } from '../../../src/broker/protocol/reply-body.js';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import { HostError } from '../../../src/kernel/errors.js';
import { makeRig, outcomeOf, type Rig, unconnected, watched } from './worker-rig.js';

const namesOf = ({ tools }: Rig) => tools.list().map(({ name }) => name);
const changed = ({ broker, host }: Rig, tools: readonly string[]) => {
  host.setTools(tools);
  broker.notify(() => true, { op: 'manifest_changed', revision: host.revision });
};
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-manifest-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('a manifest', () => {
  test('AC-P9 contains what the role of the worker may use', async () => {
    const rig = await makeRig({ tools: ({ name }) => (name === 'w1' ? ['web/fetch_url'] : []) });
    expect(namesOf(rig)).toEqual(['fetch_url']);
    expect(await outcomeOf(rig.tools.execute(undefined, 'nova_screenshot', {}))).toBe('tool_not_found not_executed');
    expect(rig.host.sendings).toEqual([]);
  });

  test('D-48 that is learned for the first time makes the worker ready, which is reported once', async () => {
    const rig = unconnected();
    const states: string[] = [];
    rig.tools.on('state', ({ state, error }) => void states.push(error ? `${state} ${error.code}` : state));
    await rig.clock.advanceAsync(1_000);
    changed(rig, ['nova/other']);
    await rig.clock.advanceAsync(1_000);
    expect(namesOf(rig)).toEqual(['other']);
    expect(states).toEqual(['ready']);
    await rig.tools.close();
    expect(states).toEqual(['ready', 'closed']);
  });

  test.each([
    ['an error', errorBody(new HostError('denied', 'no tools for this worker'))],
    ['nonsense', Buffer.from('{"revision":"r1"}')],
    ['an entry without a tool', Buffer.from('{"revision":"r1","tools":[{"server":"a","name":"b"}]}')],
  ])('D-48 that is %s is an error, never an empty list', async (_what, body) => {
    const rig = unconnected({
      prepare: (_broker, host) => {
        host.onManifest = async () => body;
      },
    });
    const ready = rig.tools.ready(30_000).catch((error: HostError) => error.code);
    await rig.clock.advanceAsync(1_000);
    expect(['denied', 'protocol_error']).toContain(await ready);
    expect(rig.tools.hasManifest).toBe(false);
    await rig.tools.close();
  });

  test('D-48 is asked for until a host answers, within the time of the caller', async () => {
    const rig = unconnected({
      prepare: (_broker, host) => {
        host.onManifest = () =>
          Promise.resolve(errorBody(new HostError('timeout', 'no host', { execution: 'not_executed' })));
      },
    });
    const hasty = rig.tools.ready(1_000).catch((error: HostError) => error.message);
    const patient = watched(rig.tools.execute('nova', 'nova_click', {}));
    await rig.clock.advanceAsync(5_000);
    expect(await hasty).toBe('not connected: no host');
    rig.host.onManifest = undefined;
    await rig.clock.advanceAsync(2_000);
    expect(patient.outcome).toBe('nova_click {}');
  });

  test('D-48 that changed is learned when the host says so, and reported once', async () => {
    const rig = await makeRig();
    const seen: unknown[] = [];
    rig.tools.on('manifest', (event) => void seen.push(event));
    changed(rig, ['nova/nova_click', 'web/search']);
    await rig.clock.advanceAsync(1_000);
    expect(namesOf(rig)).toEqual(['nova_click', 'search']);
    expect(seen).toEqual([{ revision: 'r2', tools: 2 }]);
    const asked = rig.host.manifestsAsked;
    rig.broker.notify(() => true, { op: 'manifest_changed', revision: 'r2' });
    await rig.clock.advanceAsync(1_000);
    expect(rig.host.manifestsAsked).toBe(asked);
  });

  test('D-48 that changes often is asked for once at a time, and known in the end', async () => {
    const rig = await makeRig();
    const before = rig.host.manifestsAsked;
    for (let n = 0; n < 100; n++) changed(rig, [`nova/t${n}`]);
    await rig.clock.advanceAsync(2_000);
    expect(namesOf(rig)).toEqual(['t99']);
    expect(rig.host.manifestsAsked - before).toBeLessThanOrEqual(3);
  });

  test('D-48 that changed without a notice is asked for at a call of an unknown tool, once in 5 s for all callers', async () => {
    const rig = await makeRig();
    rig.host.setTools(['nova/nova_click', 'web/search']);
    await rig.clock.advanceAsync(10_000);
    const before = rig.host.manifestsAsked;
    expect(await outcomeOf(rig.tools.execute('web', 'search', {}))).toBe('search {}');
    const unknown = Array.from({ length: 10 }, () => outcomeOf(rig.tools.execute('web', 'other', {})));
    expect(new Set(await Promise.all(unknown))).toEqual(new Set(['tool_not_found not_executed']));
    expect(rig.host.manifestsAsked - before).toBe(1);
  });

  test('D-48 is learned anew when a refusal shows that it is out of date', async () => {
    const rig = await makeRig();
    rig.host.setTools(['nova/nova_type']);
    rig.host.onSending = () => new HostError('tool_not_found', 'no such tool', { execution: 'not_executed' });
    expect(await outcomeOf(rig.tools.execute('nova', 'nova_click', {}))).toBe('tool_not_found not_executed');
    await rig.clock.advanceAsync(1_000);
    expect(namesOf(rig)).toEqual(['nova_type']);
  });

  test('D-48 that cannot be read does not replace the previous one, and is asked for again', async () => {
    const rig = await makeRig();
    rig.host.onManifest = async () => Buffer.from('{}');
    changed(rig, ['nova/nova_type']);
    await rig.clock.advanceAsync(1_000);
    expect(namesOf(rig)).toEqual(['nova_click']);
    rig.host.onManifest = undefined;
    await rig.clock.advanceAsync(3_000);
    expect(namesOf(rig)).toEqual(['nova_type']);
  });
});

test('a host that refuses the manifest ends ready() at once, also if there is a manifest of an earlier run', async () => {
  const manifestFile = path.join(folder, 'refused.json');
  await (await makeRig({ manifestFile })).tools.close();
  const rig = unconnected({
    manifestFile,
    prepare: (_broker, host) => {
      host.onManifest = async () => errorBody(new HostError('denied', 'no tools for this worker'));
    },
  });
  const ready = rig.tools.ready(30_000).catch((error: HostError) => error.code);
  await rig.clock.advanceAsync(1_000);
  const seen = await Promise.race([ready, rig.settle()]);
  expect([seen, rig.tools.status().state]).toEqual(['denied', 'ready']);
  await rig.tools.close();
});

describe('the manifest file', () => {
  const unreachable: Parameters<typeof unconnected>[0] = {
    prepare: (broker) => {
      broker.refusal = new HostError('connect_failed', 'nothing listens', { execution: 'not_executed' });
    },
  };

  test('keeps the last manifest for a start without the broker, readable by its owner only', async () => {
    const manifestFile = path.join(folder, 'kept.json');
    const first = await makeRig({ manifestFile });
    changed(first, ['nova/nova_click', 'web/search']);
    await first.clock.advanceAsync(1_000);
    await first.tools.close();
    expect(statSync(manifestFile).mode & 0o777).toBe(0o600);
    const second = await makeRig({ ...unreachable, manifestFile });
    expect(namesOf(second)).toEqual(['nova_click', 'search']);
    expect(second.tools.status()).toMatchObject({ state: 'reconnecting', revision: 'r2', connections: 0 });
    await expect(
      connectWorker({
        ...{
          open: () => Promise.reject(new HostError('unauthenticated', 'refused')),
          clock: second.clock,
          manifestFile,
        },
      }),
    ).rejects.toMatchObject({ code: 'unauthenticated' });
    second.broker.refusal = undefined;
    await second.clock.advanceAsync(3_000);
    expect(namesOf(second)).toEqual(['nova_click']);
    expect(JSON.parse(readFileSync(manifestFile, 'utf8'))).toMatchObject({ revision: 'r1' });
    await second.tools.close();
  });

  test.each([
    ['damaged', '{"revision":"r1","tools":[{"server":7}]}'],
    ['cut off', '{"revision":"r1","to'],
    ['too large', `{"revision":"r1","tools":[],"x":"${'x'.repeat(4_300_000)}"}`],
  ])('that is %s is not used, and replaced', async (what, text) => {
    const manifestFile = path.join(folder, `${what}.json`);
    writeFileSync(manifestFile, text);
    chmodSync(manifestFile, 0o600);
    const rig = unconnected({ manifestFile });
    const problems: unknown[] = [];
    rig.tools.on('problem', ({ error }) => void problems.push(error));
    expect(rig.tools.hasManifest).toBe(false);
    await rig.settle();
    expect(problems).toHaveLength(1);
    expect(JSON.parse(readFileSync(manifestFile, 'utf8'))).toMatchObject({
      revision: 'r1',
      tools: [{ server: 'nova' }],
    });
    await rig.tools.close();
  });
});
