/**
 * How many receipts a second the store gives on this disk, and what one costs. For people: no test depends on it.
 * Usage: node test/broker/store/store-figures.mjs [seconds] [folder]
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { openBrokerStore } from '../../../dist/broker/store/broker-store.js';
import { systemClock } from '../../../dist/kernel/clock.js';

const [seconds = 3, base = os.tmpdir()] = process.argv.slice(2);
const body = Buffer.alloc(300, 'x');
const letter = { to: 'host', from: { mailbox: 'w1', role: 'r' }, kind: 'request', expiresAtMs: undefined, body };

const put = async ({ mail }, at) => void (await mail.put({ ...letter, id: `id-${at}`, sentAtMs: Date.now() }));
const putAndRemove = async ({ mail }, at) => {
  const { seq } = await mail.put({ ...letter, id: `id-${at}`, sentAtMs: Date.now() });
  mail.handedOut(seq);
  mail.remove(seq);
};
const call = async ({ journal }, at) => {
  const key = `key-${at}`;
  const rememberUntil = new Date(Date.now() + 3_600_000);
  await journal.claim({ mailbox: 'w1', key, hash: 'h', rememberUntil, isRepeatable: false });
  await journal.finish('w1', key, body);
};

for (const [what, work, inFlight] of [
  ['put, one at a time', put, 1],
  ['put, 16 x window 1', put, 16],
  ['put, 64 in flight', put, 64],
  ['put, 1,024 in flight', put, 1_024],
  ['put, hand out, remove, 1,024', putAndRemove, 1_024],
  ['claim and finish, 64', call, 64],
]) {
  const folder = mkdtempSync(path.join(base, 'hostler-figures-'));
  const store = await openBrokerStore({ folder, clock: systemClock });
  const startMs = performance.now();
  const endMs = startMs + Number(seconds) * 1_000;
  const cpu = process.cpuUsage();
  const waits = [];
  let done = 0;
  const one = async () => {
    while (performance.now() < endMs) {
      const fromMs = performance.now();
      await work(store, done++);
      waits.push(performance.now() - fromMs);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  const tookMs = performance.now() - startMs;
  const { user, system } = process.cpuUsage(cpu);
  waits.sort((a, b) => a - b);
  const at = (share) => `${waits[Math.floor(waits.length * share)].toFixed(2)} ms`;
  const perSecond = Math.round((done * 1_000) / tookMs);
  console.log(
    `${what}: ${perSecond}/s, p50 ${at(0.5)}, p99 ${at(0.99)}, ${((user + system) / done).toFixed(1)} µs of processor each`,
  );
  await store.close();
  const openMs = performance.now();
  const again = await openBrokerStore({ folder, clock: systemClock });
  const [size] = await again.mail.sizes();
  console.log(`  opened again in ${Math.round(performance.now() - openMs)} ms with ${size?.count ?? 0} messages`);
  await again.close();
  rmSync(folder, { recursive: true });
}
