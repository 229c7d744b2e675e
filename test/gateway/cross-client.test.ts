/**
 * Sixty-four clients with the same request ids at one gateway, while connections are cut and the server is killed.
 * CALLS: calls of each client (50). SEED repeats the random choices, but not the timing.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { randomInt, seededRandom } from '../../src/kernel/random.js';
import { startHostler } from '../conformance/gateway.mjs';
import { eventually } from '../eventually.js';
import { crossClients } from './cross-clients.js';

const clients = 64;
const callsEach = Number(process.env.CALLS ?? 50);
const kills = callsEach > 100 ? 20 : 3;
const runMs = callsEach > 100 ? 1_800_000 : 120_000;
const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
const server = fileURLToPath(new URL('../fakes/nonce-server.mjs', import.meta.url));
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-cross-'));
const pids = path.join(folder, 'pids');

let hostler: Awaited<ReturnType<typeof startHostler>>;

// Each test has a new host: one whose server was killed often would make the next test wait for restarts.
beforeEach(async () => {
  rmSync(pids, { force: true });
  const entry = { command: process.execPath, args: [server], env: { PIDS: pids }, restart: { max: 1_000 } };
  hostler = await startHostler({ nonce: entry });
});

afterEach(() => hostler?.stop());

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Process ids of all servers that were started so far. */
const started = (): number[] =>
  existsSync(pids) ? readFileSync(pids, 'utf8').split('\n').filter(Boolean).map(Number) : [];

/** Kills the running server, and waits for the next one, so that every kill hits a live process. */
async function killSome(isOver: () => boolean): Promise<number> {
  const random = seededRandom(seed + 1);
  let done = 0;
  while (done < kills && !isOver()) {
    const now = await eventually('the server runs', () => (started().length > 0 || isOver()) && started(), 30_000);
    await new Promise((resolve) => setTimeout(resolve, randomInt(random, 200, 800)));
    const pid = now.at(-1);
    if (isOver() || pid === undefined) break;
    process.kill(pid, 'SIGKILL');
    done += 1;
    await eventually('the next one runs', () => isOver() || started().length > now.length, 30_000);
  }
  return done;
}

describe.each(['', 'nonce__'])('X8 with names that begin with %j', (prefix) => {
  test(
    'no client gets an answer, a notification or a cached result of another',
    async () => {
      const url = prefix === '' ? `${hostler.url}/nonce` : hostler.url;
      let isOver = false;
      const killing = killSome(() => isOver);
      const tally = await crossClients({ url, clients, callsEach, random: seededRandom(seed), prefix });
      isOver = true;
      const killed = await killing;
      console.log(`X8 seed ${seed}: ${killed} kills, ${JSON.stringify({ ...tally, wrong: tally.wrong.length })}`);
      expect(tally.wrong).toEqual([]);
      expect(tally.lost).toBe(0);
      expect(tally.calls).toBe(clients * callsEach);
      expect(tally.answered + tally.refused + tally.cut).toBe(tally.calls);
      // The test proves something only if most calls were answered, and if there were kills, cuts, progress, updates and reconnects.
      expect(tally.answered).toBeGreaterThan(tally.calls / 2);
      expect(Math.min(killed, tally.cut, tally.progress, tally.updates, tally.reconnects)).toBeGreaterThan(0);
    },
    runMs,
  );
});
