import { describe, expect, test } from 'vitest';
import { RetryBudget } from './retry-budget.js';

describe('the retry budget', () => {
  const drained = () => {
    const budget = new RetryBudget();
    for (let i = 0; i < 100; i++) budget.take()?.();
    return budget;
  };

  test('pays for a hundred retries without a success', () => {
    expect(drained().tokens).toBe(0);
  });

  test('then allows three at a time, and one more when one has ended', () => {
    const budget = drained();
    const ends = [budget.take(), budget.take(), budget.take()];
    expect(ends).not.toContain(undefined);
    expect(budget.take()).toBeUndefined();
    ends[0]?.();
    ends[0]?.();
    expect(budget.inFlight).toBe(2);
    expect(budget.take()).toBeDefined();
    expect(budget.take()).toBeUndefined();
  });

  test('five successes earn one retry beyond those', () => {
    const budget = drained();
    for (let i = 0; i < 3; i++) budget.take();
    for (let i = 0; i < 4; i++) budget.succeeded();
    expect(budget.take()).toBeUndefined();
    budget.succeeded();
    expect(budget.take()).toBeDefined();
    expect(budget.tokens).toBe(0);
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

  test('during an outage at 1,000 calls retries stay a small part', () => {
    const budget = new RetryBudget();
    const retries = Array.from({ length: 1_000 }, () => budget.take()).filter(Boolean).length;
    expect(retries).toBe(100);
  });
});
