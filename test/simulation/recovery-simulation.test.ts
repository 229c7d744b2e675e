/**
 * Seeds of the recovery simulation. `RECOVERY_SEEDS` says how many, `FIRST_SEED` where they begin; `SEED=n` runs that one alone and
 * prints what happened.
 */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { RecoverySimulation } from './recovery-simulation.js';
import { watchUnhandled } from './unhandled.js';

const seeds = Number(process.env.RECOVERY_SEEDS ?? 500);
const firstSeed = Number(process.env.FIRST_SEED ?? 1);
const onlySeed = process.env.SEED === undefined ? undefined : Number(process.env.SEED);

const takeUnhandled = watchUnhandled(onlySeed !== undefined);

/** The faults found with this seed, possibly none. */
async function simulate(
  seed: number,
  hasOperator = false,
): Promise<{ simulation: RecoverySimulation; wrong: readonly string[] }> {
  const simulation = new RecoverySimulation(seed, hasOperator);
  const wrong = [...(await simulation.run()), ...takeUnhandled()];
  if (onlySeed !== undefined) console.log(simulation.world.trace.join('\n'));
  return { simulation, wrong };
}

const hashOf = ({ world }: RecoverySimulation): string =>
  createHash('sha256').update(world.trace.join('\n')).digest('hex');

async function simulateAll(last: number, hasOperator: boolean): Promise<void> {
  const first = onlySeed ?? firstSeed;
  const red: string[] = [];
  let calls = 0;
  let answered = 0;
  let slowestMs = 0;
  for (let seed = first; seed <= last; seed++) {
    const { simulation, wrong } = await simulate(seed, hasOperator);
    const { world, servedInMs } = simulation;
    calls += world.asked.length;
    answered += world.asked.filter(({ outcomes }) => outcomes[0] === 'answered').length;
    slowestMs = Math.max(slowestMs, ...servedInMs);
    if (wrong.length > 0) red.push(`SEED=${seed} replays this: ${wrong.slice(0, 5).join('; ')}`);
  }
  console.log(`seeds ${first} to ${last}: ${calls} calls, ${answered} answered; slowest recovery ${slowestMs} ms`);
  if (red.length > 0) console.log(red.join('\n'));
  expect(red.slice(0, 10), `${red.length} seeds are red`).toEqual([]);
  expect(answered).toBeGreaterThan(0);
}

test(
  `W8 ${onlySeed === undefined ? `${seeds} seeds` : `seed ${onlySeed}`}: no call runs twice, and a server that is healthy again is served again`,
  {
    timeout: 3_600_000,
  },
  () => simulateAll(onlySeed ?? firstSeed + seeds - 1, false),
);

test(
  'W8 also while an operator stops, edits and removes servers, and clients have instances of their own',
  {
    timeout: 3_600_000,
  },
  () => simulateAll(onlySeed ?? firstSeed + Math.ceil(seeds / 5) - 1, true),
);

if (onlySeed === undefined)
  test('W8 the same seed gives the same run', async () => {
    for (let seed = 1; seed <= 10; seed++) {
      const [one, other] = [await simulate(seed), await simulate(seed)];
      expect(hashOf(one.simulation), `seed ${seed}`).toBe(hashOf(other.simulation));
    }
  });
