import { expect, test } from 'vitest';
import { Breaker, type CircuitChanged, defaultBreakerPlan } from '../policy/breaker.js';
import { closedStatus, WorstCircuit } from './server-circuit.js';

const plan = { ...defaultBreakerPlan, threshold: 1 };

function setUp() {
  const changes: Parameters<CircuitChanged>[] = [];
  const circuits = new WorstCircuit((...change) => changes.push(change));
  const breakerOf = () => {
    const breaker: Breaker = new Breaker(plan, (_from, to, failures) => circuits.changed(breaker, to, failures));
    return breaker;
  };
  return { changes, circuits, breakerOf };
}

function admitted(breaker: Breaker, nowMs: number) {
  const admission = breaker.admit(nowMs);
  if (!admission.admitted) throw new Error('refused');
  return admission.ticket;
}

const fail = (breaker: Breaker, nowMs: number) => breaker.failed(admitted(breaker, nowMs), nowMs, 'timeout');

test('W13 the worst breaker represents the server, and each change of it is reported once', () => {
  const { changes, circuits, breakerOf } = setUp();
  const [own, ann, bob] = [breakerOf(), breakerOf(), breakerOf()];
  expect(circuits.now(own, 0)).toEqual(closedStatus);
  fail(ann, 0);
  fail(bob, 1_000);
  expect(circuits.now(own, 1_000)).toEqual({ circuit: 'open', failures: 1, opensAgainAtMs: 30_000 });
  const trial = admitted(ann, 30_000);
  expect(circuits.now(own, 30_000)).toMatchObject({ circuit: 'open', opensAgainAtMs: 31_000 });
  ann.succeeded(trial);
  bob.succeeded(admitted(bob, 31_000));
  expect(circuits.now(own, 31_000)).toEqual(closedStatus);
  expect(changes).toEqual([
    ['closed', 'open', 1],
    ['open', 'half_open', 1],
    ['half_open', 'closed', 0],
  ]);
});

test('while all breakers are closed, the failures of the server’s own breaker are shown', () => {
  const { circuits } = setUp();
  const own = new Breaker();
  fail(own, 0);
  expect(circuits.now(own, 0)).toEqual({ ...closedStatus, failures: 1 });
  expect(circuits.now(undefined, 0)).toEqual(closedStatus);
});
