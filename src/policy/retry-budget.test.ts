import { describe, expect, test } from 'vitest';
import { defaultRetryPlan, RetryBudget } from './retry-budget.js';

describe('the retry budget', () => {
  const drained = () => {
    const budget = new RetryBudget();
    for (let i = 0; i < 100; i++) budget.take()?.();
    return budget;
  };
  const taken = (budget: RetryBudget, wanted: number) =>
    Array.from({ length: wanted }, () => budget.take()).filter((end) => end !== undefined);

  test('pays for a hundred retries without a success, and for none beyond', () => {
    const budget = drained();
    expect(budget.tokens).toBe(0);
    expect(budget.take()).toBeUndefined();
    for (let i = 0; i < 4; i++) budget.succeeded();
    expect(budget.take()).toBeUndefined();
  });

  test('five successes earn one more', () => {
    const budget = drained();
    for (let i = 0; i < 5; i++) budget.succeeded();
    expect(budget.take()).toBeDefined();
    expect(budget.take()).toBeUndefined();
    expect(budget.tokens).toBe(0);
  });

  test('of few calls three at a time are sent again, and one more when one has ended', () => {
    const budget = new RetryBudget();
    const ends = taken(budget, 10);
    expect(ends).toHaveLength(3);
    ends[0]?.();
    ends[0]?.();
    expect(budget.inFlight).toBe(2);
    expect(budget.take()).toBeDefined();
    expect(budget.take()).toBeUndefined();
  });

  test('of many calls a tenth', () => {
    const budget = new RetryBudget();
    for (let i = 0; i < 200; i++) budget.succeeded();
    const [retries, calls] = [taken(budget, 300).length, 500];
    expect(retries).toBeGreaterThan(20);
    expect(retries).toBeLessThanOrEqual(calls / 10);
  });

  test('what was long ago pays for nothing', () => {
    const budget = new RetryBudget({ ...defaultRetryPlan, tokensMax: 1_000_000 });
    for (let i = 0; i < 1_000_000; i++) budget.succeeded();
    // A tenth of these, and of the thousand before them.
    expect(taken(budget, 10_000).length).toBeLessThanOrEqual(1_100);
  });

  test('a timeout costs two retries, successes never save up more than the whole', () => {
    const budget = new RetryBudget();
    budget.timedOut();
    expect(budget.tokens).toBe(490);
    for (let i = 0; i < 50; i++) budget.succeeded();
    expect(budget.tokens).toBe(500);
    for (let i = 0; i < 60; i++) budget.timedOut();
    expect(budget.tokens).toBe(0);
  });
});
