/** B2 on NATS: kills of hosts and of nats-server under load. The runs are counted in a ledger, outside of Hostler. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import { isHostError } from '../../../src/kernel/errors.js';
import { eventually } from '../../eventually.js';
import { endHostProcesses, type HostProcess, runsOf, startHostProcess } from './host-process.js';
import { NatsStage } from './nats-rig.js';

const kills = Number(process.env.NATS_KILLS ?? 4);
const lanes = 16;

test(`B2 ${kills} kills of hosts and of nats-server under load: every call has one outcome, and none runs twice`, async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kills-'));
  const ledger = path.join(folder, 'ledger');
  const stage = await NatsStage.start();
  try {
    const hosts: HostProcess[] = [];
    for (let at = 0; at < 3; at++) hosts.push(await startHostProcess(stage, { ledger, waitMs: 20 }));
    const workers = await Promise.all(['w1', 'w2'].map((name) => connectWorker({ open: stage.opener(name) })));
    const outcomes = new Map<string, string>();
    let [next, isOver] = [0, false];
    const load = Promise.all(
      Array.from({ length: lanes }, async (_, lane) => {
        while (!isOver) {
          const key = `k${next++}`;
          const call = workers[lane % 2]?.execute('srv', 'run', { key }, { deadlineMs: 60_000 });
          const outcome = await call?.then(
            () => 'ok',
            (error) => (isHostError(error) ? `${error.code} ${error.details.execution}` : String(error)),
          );
          outcomes.set(key, outcome ?? 'none');
        }
      }),
    );
    for (let kill = 0; kill < kills; kill++) {
      const before = outcomes.size;
      await eventually('calls go on', () => outcomes.size >= before + lanes);
      if (kill % 4 === 3) {
        await stage.server.kill();
        await stage.server.start();
      } else {
        await hosts[kill % 3]?.kill();
        hosts[kill % 3] = await startHostProcess(stage, { ledger, waitMs: 20 });
      }
    }
    isOver = true;
    await load;
    const runs = runsOf(ledger);
    const counts: Record<string, number> = {};
    for (const outcome of outcomes.values()) counts[outcome] = (counts[outcome] ?? 0) + 1;
    process.stdout.write(`${kills} kills, ${outcomes.size} calls: ${JSON.stringify(counts)}\n`);
    expect(outcomes.size).toBe(next);
    expect([...runs].filter(([, times]) => times > 1)).toEqual([]);
    const wrong = [...outcomes].filter(
      ([key, outcome]) => (outcome === 'ok' && !runs.has(key)) || (outcome.endsWith('not_executed') && runs.has(key)),
    );
    expect(wrong).toEqual([]);
    expect(Object.keys(counts).filter((each) => !/^ok$|^outcome_uncertain |not_executed$/.test(each))).toEqual([]);
    await Promise.all(workers.map((each) => each.close()));
  } finally {
    await endHostProcesses();
    await stage.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}, 1_200_000);
