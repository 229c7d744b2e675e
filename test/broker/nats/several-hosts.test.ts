/** Several hosts on one NATS server: which of them runs a call, and what happens to the call when a host dies. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import type { RemoteTools } from '../../../src/broker/worker/remote-tools.js';
import { eventually } from '../../eventually.js';
import { countFor, isLongTier, timeLimitMs } from '../../tier.js';
import { endHostProcesses, runsOf, startHostProcess } from './host-process.js';
import { keys, NatsStage, request } from './nats-rig.js';

let stage: NatsStage;
let folder: string;
let ledger: string;
const tools: RemoteTools[] = [];

beforeAll(async () => {
  stage = await NatsStage.start();
}, 30_000);
afterAll(() => stage.stop());
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-ledger-'));
  ledger = path.join(folder, 'ledger');
});
afterEach(async () => {
  await Promise.all(tools.splice(0).map((each) => each.close()));
  await Promise.all(stage.hosts.splice(0).map((each) => each.close()));
  await endHostProcesses();
  rmSync(folder, { recursive: true, force: true });
});

const worker = async (name = 'w1') => {
  const connected = await connectWorker({ open: stage.opener(name) });
  tools.push(connected);
  return connected;
};
const outcomeOf = (call: Promise<{ json(): unknown }>) =>
  call.then(
    () => 'ok',
    (error) => error.code as string,
  );

test('D-40 three hosts share the calls, each call runs once, and each host runs some', async () => {
  const hosts = await Promise.all([stage.host(), stage.host(), stage.host()]);
  const remote = await worker();
  const all = keys(300);
  await Promise.all(all.map((key) => remote.execute('srv', 'run', { key })));
  const ran = hosts.flatMap((host) => host.ran());
  expect(ran).toHaveLength(300);
  expect(new Set(ran).size).toBe(300);
  for (const host of hosts) expect(host.ran().length).toBeGreaterThan(0);
});

test('D-40 of hosts that receive one key at once, one runs it', async () => {
  const hosts = await Promise.all([stage.host(), stage.host(), stage.host()]);
  const count = countFor(100, 1_000);
  for (let round = 0; round < count; round++) {
    const id = { worker: 'w1', epoch: 'e_w1', key: `claim${round}` };
    const call = { id, digest: 'd', isCallersKey: false, deadlineMs: 60_000, state: 'running' as const };
    const received = await Promise.all(hosts.map(({ nats }) => nats.log.receive(call)));
    const winner = received.find(({ isNew }) => isNew)?.row.owner;
    expect(received.filter(({ isNew }) => isNew)).toHaveLength(1);
    expect(received.map(({ row }) => row.owner)).toEqual([winner, winner, winner]);
  }
});

test('AC-BR4 D-40 after a kill of a host its running calls are uncertain within 10 s, its received ones run at other hosts, none twice', async () => {
  const host = await startHostProcess(stage, { ledger, waitMs: 60_000 });
  const remote = await worker();
  // 64 of them run, and the others are received.
  const all = keys(70, 'q');
  const outcomes = Promise.all(all.map((key) => outcomeOf(remote.execute('srv', 'run', { key }))));
  await eventually('64 calls run', () => runsOf(ledger).size === 64);
  await startHostProcess(stage, { ledger });
  const killedAtMs = performance.now();
  await host.kill();
  const counts: Record<string, number> = {};
  for (const outcome of await outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  expect(performance.now() - killedAtMs).toBeLessThan(timeLimitMs(10_000));
  expect(counts).toEqual({ ok: 6, outcome_uncertain: 64 });
  expect([...runsOf(ledger).values()].every((count) => count === 1)).toBe(true);
  expect(runsOf(ledger).size).toBe(70);
}, 60_000);

if (isLongTier)
  test('B10 a repeatable call of killed hosts runs again, three times in all', async () => {
    const remote = worker();
    let host = await startHostProcess(stage, { ledger, waitMs: 60_000 });
    const outcome = outcomeOf((await remote).execute('srv', 'again', { key: 'again' }, { deadlineMs: 120_000 }));
    for (let times = 1; times <= 3; times++) {
      await eventually(`run ${times}`, () => runsOf(ledger).get('again') === times);
      const next = await startHostProcess(stage, { ledger, waitMs: 60_000 });
      await host.kill();
      host = next;
    }
    expect(await outcome).toBe('outcome_uncertain');
    expect(runsOf(ledger).get('again')).toBe(3);
  }, 90_000);

test('D-40 a paused host is not taken for dead: its calls end when it continues', async () => {
  const host = await startHostProcess(stage, { ledger, waitMs: 1_000 });
  const remote = await worker();
  const outcome = outcomeOf(remote.execute('srv', 'run', { key: 'paused' }));
  await eventually('the call runs', () => runsOf(ledger).size === 1);
  const other = await stage.host();
  host.pause();
  expect(await other.nats.log.isGone(host.owner)).toBe(false);
  host.resume();
  expect(await outcome).toBe('ok');
  await host.kill();
  // nats-server may deliver the first question to the closed socket.
  await eventually('the host is gone', () => other.nats.log.isGone(host.owner));
});

test('a call that is cancelled while no host is up does not run when a host starts', async () => {
  const first = await stage.host();
  const remote = await worker();
  await first.close();
  stage.hosts.length = 0;
  const controller = new AbortController();
  const call = remote
    .execute('srv', 'run', { key: 'late' }, { signal: controller.signal })
    .catch((error) => error.code);
  controller.abort();
  expect(await call).toBe('cancelled');
  const second = await stage.host();
  await remote.execute('srv', 'run', { key: 'next' });
  expect(second.ran()).toEqual(['{"key":"next"}']);
});

test('AC-BR8 a cancel reaches the host that runs the call, whichever it is', async () => {
  const hosts = await Promise.all([stage.host(), stage.host()]);
  let aborted = 0;
  for (const { upstreams } of hosts)
    upstreams.onCall = ({ options: { signal } }) =>
      new Promise((_resolve, reject) => {
        signal?.addEventListener('abort', () => {
          aborted++;
          reject(new Error('aborted'));
        });
      });
  const { connection } = await stage.connect('w1', 'cancels');
  const all = keys(20, 'cancel');
  await Promise.all(all.map((key) => connection.call(request(key))));
  for (const key of all) connection.cancel(key);
  await eventually('all are cancelled', () => aborted === 20);
});

test('a call that is sent while no host is up is sent again as soon as one serves', async () => {
  const first = await stage.host();
  const { connection } = await stage.connect('w1');
  await first.close();
  const unheard = connection.call(request('unheard')).then(
    () => 'receipt',
    ({ code, details }) => `${code} ${details.retryAfterMs}`,
  );
  const second = await stage.host();
  // The request did not time out: after a timeout the worker would wait for a second.
  expect(await unheard).toBe('transport 0');
  expect(second.ran()).toEqual([]);
});
