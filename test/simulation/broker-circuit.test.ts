/**
 * Breaker and restarts of one server, as a worker behind a broker sees them: the breaker judges a run by its calls, the supervisor
 * decides about runs. The two never both refuse calls for the same failure, and neither undoes a decision of the other.
 */
import { expect, test } from 'vitest';
import { seededRandom } from '../../src/kernel/random.js';
import { SimulatedBroker } from './simulated-broker.js';

const threshold = 5;
const callMs = 1_000;
const entry = { timeouts: { call: `${callMs / 1_000}s` } };

/** A broker whose worker calls once in a while; `call` returns the outcome. */
async function calling(more: object = {}, deadlineMs = 20_000) {
  const broker = await SimulatedBroker.open(seededRandom(7), 'files', { ...entry, ...more });
  const { managed, simulated } = broker.host.member('files');
  const { clock } = broker.host;
  const circuit = () => managed.breaker.circuit(clock.nowMs());
  const failures = () => managed.breaker.failures;
  const state = () => managed.supervisor.snapshot().state;
  /** Must never happen: a call counts for a run that has ended or not begun. */
  const both: string[] = [];
  const look = () => {
    if (circuit() !== 'closed' && !['ready', 'suspect'].includes(state())) both.push(`${circuit()} while ${state()}`);
  };
  const advance = async (ms: number) => {
    for (let left = ms; left > 0; left -= 100) {
      await broker.advance(Math.min(left, 100));
      look();
    }
  };
  const call = async (forMs = callMs + 200) => {
    let outcome = 'open';
    void broker.call('write', deadlineMs).then((how) => {
      outcome = how;
    });
    await advance(forMs);
    return outcome;
  };
  const executed = () => [...simulated.ledger.values()].reduce((sum, times) => sum + times, 0);
  return { broker, simulated, advance, call, circuit, failures, state, both, executed };
}

test('D-54 calls of a worker open the breaker of a server that answers nothing but signs of life, and it is not started again for that', async () => {
  const { broker, simulated, advance, call, circuit, state, both, executed } = await calling();
  expect(await call()).toBe('ok');
  const run = simulated.session;
  Object.assign(simulated, { faultRate: 1, faults: ['hang'] });
  for (let n = 0; n < threshold; n++) expect(await call()).toBe('outcome_uncertain uncertain');
  expect(circuit()).toBe('open');
  const before = executed();
  for (let n = 0; n < 10; n++) expect(await call()).toBe('circuit_open not_executed');
  expect(executed()).toBe(before);
  expect([state(), simulated.session]).toEqual(['ready', run]);
  // The open time is over: one call is the trial, and opens the breaker again; then the server recovers.
  await advance(30_000);
  expect(await call()).toBe('outcome_uncertain uncertain');
  expect(await call()).toBe('circuit_open not_executed');
  simulated.mend();
  await advance(60_000);
  expect([await call(), circuit(), simulated.session]).toEqual(['ok', 'closed', run]);
  expect(both).toEqual([]);
  await broker.close();
});

test('D-54 the breaker of an abandoned run ends with it, and only its own calls count for the next run', async () => {
  const { broker, simulated, advance, call, circuit, state, both } = await calling();
  expect(await call()).toBe('ok');
  const run = simulated.session;
  run?.wedge();
  for (let n = 0; n < threshold; n++) expect(await call()).toBe('outcome_uncertain uncertain');
  // The breaker opens before the supervisor knows that the run is dead: restarts do not hide the failures.
  expect([circuit(), state(), await call()]).toEqual(['open', 'ready', 'circuit_open not_executed']);
  await advance(60_000);
  expect(simulated.session).not.toBe(run);
  expect([circuit(), state(), await call()]).toEqual(['closed', 'ready', 'ok']);
  expect(both).toEqual([]);
  await broker.close();
});

test('D-54 a server that dies of every call is parked, although every new run has a closed breaker', async () => {
  const { broker, simulated, advance, call, circuit, state, both, executed } = await calling({
    restart: { max: 3, window: '10m' },
  });
  expect(await call()).toBe('ok');
  Object.assign(simulated, { faultRate: 1, faults: ['crash_sent'] });
  const outcomes: string[] = [];
  for (let n = 0; n < 40 && state() !== 'parked'; n++) outcomes.push(await call(21_000));
  expect(state()).toBe('parked');
  // One for each allowed run, and no others.
  expect(outcomes.filter((how) => how.startsWith('outcome_uncertain')).length).toBeLessThanOrEqual(4);
  // A call may start the server; the calls right after it are refused.
  expect(await call(3_000)).toBe('outcome_uncertain uncertain');
  const before = executed();
  for (let n = 0; n < 5; n++) expect(await call(200)).toBe('server_parked not_executed');
  expect([executed(), circuit(), state()]).toEqual([before, 'closed', 'parked']);
  simulated.mend();
  await advance(600_000);
  expect([await call(), state()]).toEqual(['ok', 'ready']);
  expect(both).toEqual([]);
  await broker.close();
});

test('W10 calls of a worker that hang until its own deadline open the breaker, and a deadline of 5 ms does not', async () => {
  const hung = await calling({ timeouts: { call: '60s' } }, 6_000);
  expect(await hung.call()).toBe('ok');
  const run = hung.simulated.session;
  // The server hangs for good; its supervisor would notice only after 45 s.
  run?.wedge();
  for (let n = 0; n < 3; n++) {
    expect(await hung.call(12_000)).toBe('outcome_uncertain uncertain');
    expect(hung.failures()).toBe(n + 1);
  }
  expect([hung.state(), hung.simulated.session]).toEqual(['ready', run]);
  await hung.broker.close();

  const impatient = await calling({ timeouts: { call: '60s' } }, 5);
  Object.assign(impatient.simulated, { faultRate: 1, faults: ['hang'] });
  for (let n = 0; n < 10; n++) await impatient.call(6_000);
  expect([impatient.failures(), impatient.circuit()]).toEqual([0, 'closed']);
  await impatient.broker.close();
});
