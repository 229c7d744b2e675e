/** A real broker is killed again and again while workers and a host use it; what happened to every message is judged at the end. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { openHostLink } from '../../../src/broker/embedded/host-link.js';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { randomInt, seededRandom } from '../../../src/kernel/random.js';
import { hostCredential, keyOf, worker } from './core-bench.js';
import { judge, spotless } from './history.js';
import { Traffic } from './traffic.js';

const kills = Number(process.env.BROKER_KILLS ?? 4);
const seed = Number(process.env.SEED ?? 20_261_116);
const script = fileURLToPath(new URL('./broker-process.mjs', import.meta.url));
const names = Array.from({ length: 8 }, (_, n) => `w${n}`);

interface Serving {
  readonly child: ChildProcess;
  readonly url: string;
  readonly openMs: number;
  readonly startMs: number;
}

async function startBroker(folder: string, port: number): Promise<Serving> {
  const credentials = JSON.stringify([...names.map((name) => worker(name)), hostCredential]);
  const child = spawn(process.execPath, [script, folder, String(port), credentials], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [line] = (await once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), 'line')) as [string];
  return { child, ...(JSON.parse(line) as Omit<Serving, 'child'>) };
}

async function kill({ child }: Serving): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

test(`B2 ${kills} kills of a broker in use: no receipt lost, nothing reordered, no reply lost`, {
  timeout: 3_000_000,
}, async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kills-'));
  const random = seededRandom(seed);
  let serving = await startBroker(folder, 0);
  const { url } = serving;
  const port = Number(new URL(url).port);
  const traffic = new Traffic({
    ...{ workers: names, random },
    worker: (name) => openWorkerLink({ url, key: keyOf(name), clock: systemClock }),
    host: () => openHostLink({ url, key: keyOf('host'), clock: systemClock }),
  });
  traffic.start();
  const openMs: number[] = [];
  const startMs: number[] = [];
  for (let n = 0; n < kills; n++) {
    // In use: so much came through since the last one.
    const { taken } = traffic;
    const more = randomInt(random, 40, 160);
    while (traffic.taken < taken + more) await new Promise((resolve) => setTimeout(resolve, 1));
    await kill(serving);
    serving = await startBroker(folder, port);
    openMs.push(serving.openMs);
    startMs.push(serving.startMs);
  }
  await traffic.finish();
  await kill(serving);
  rmSync(folder, { recursive: true, force: true });
  const receipts = traffic.history.filter(({ kind }) => kind === 'receipt').length;
  const handed = traffic.history.filter(({ kind }) => kind === 'handed').length;
  const sorted = (values: number[]) => [...values].sort((a, b) => a - b);
  const at = (values: number[], share: number) => sorted(values)[Math.floor(share * (values.length - 1))]?.toFixed(0);
  console.log(
    `B2: seed ${seed}, ${kills} kills, ${receipts} receipts, ${handed} handed out, ${traffic.opened} connections; ` +
      `disk to serving p50 ${at(openMs, 0.5)} ms, max ${at(openMs, 1)} ms; process to serving p50 ${at(startMs, 0.5)} ms, ` +
      `max ${at(startMs, 1)} ms`,
  );
  expect(judge(traffic.history)).toEqual(spotless);
  expect(traffic.taken).toBe(receipts);
  expect(handed).toBeGreaterThan(receipts);
  expect(receipts).toBeGreaterThan(kills * 40);
});
