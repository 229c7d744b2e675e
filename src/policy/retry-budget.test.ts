import { describe, expect, test } from 'vitest';
import { defaultRetryPlan, RetryBudget } from './retry.js';

describe('the retry budget', () => {
  const taken = (budget: RetryBudget, wanted: number) =>
    Array.from({ length: wanted }, () => budget.take()).filter((end) => end !== undefined);
  const drained = () => {
    const budget = new RetryBudget();
    for (const end of taken(budget, 100)) end();
    return budget;
  };

  test('pays for a hundred retries without a success, even at once, and for no more', () => {
    expect(taken(new RetryBudget(), 1_000)).toHaveLength(100);
    const budget = drained();
    expect(budget.tokens).toBe(0);
    expect(budget.take()).toBeUndefined();
    for (let i = 0; i < 4; i++) budget.succeeded();
    expect(budget.take()).toBeUndefined();
  });

  test('five successes pay for one more retry', () => {
    const budget = drained();
    for (let i = 0; i < 5; i++) budget.succeeded();
    expect(budget.take()).toBeDefined();
    expect(budget.take()).toBeUndefined();
    expect(budget.tokens).toBe(0);
  });

  describe('when the quota would allow more', () => {
    const plenty = { ...defaultRetryPlan, tokensMax: 1_000_000 };
    const atItsShare = () => {
      const budget = new RetryBudget(plenty);
      for (const end of taken(budget, 100)) end();
      return budget;
    };

    test('three calls at a time are sent again, and one more when one has ended', () => {
      const budget = atItsShare();
      const ends = taken(budget, 5);
      expect(ends).toHaveLength(3);
      ends[0]?.();
      ends[0]?.();
      expect(budget.inFlight).toBe(2);
      expect(budget.take()).toBeDefined();
      expect(budget.take()).toBeUndefined();
    });

    test('a tenth of many calls may be sent again, in addition to those three', () => {
      const budget = atItsShare();
      expect(taken(budget, 3)).toHaveLength(3);
      // Each refusal is the end of a call.
      expect(taken(budget, 10_000)).toHaveLength(909);
    });

    test('successes of long ago pay for a hundred retries, and no more', () => {
      const budget = new RetryBudget(plenty);
      for (let i = 0; i < 1_000_000; i++) budget.succeeded();
      expect(taken(budget, 109)).toHaveLength(100);
    });
  });

  test('a timeout costs two retries, and successes never save more than the maximum', () => {
    const budget = new RetryBudget();
    budget.timedOut();
    expect(budget.tokens).toBe(490);
    for (let i = 0; i < 50; i++) budget.succeeded();
    expect(budget.tokens).toBe(500);
    for (let i = 0; i < 60; i++) budget.timedOut();
    expect(budget.tokens).toBe(0);
  });
});
