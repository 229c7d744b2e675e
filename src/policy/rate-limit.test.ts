import { describe, expect, test } from 'vitest';
import {
  type Ask,
  failureOf,
  fakeCall,
  fakePrincipal,
  fakeResult,
  promised,
  staged,
} from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { allow } from './allowlist.js';
import type { Send, Stage } from './operation.js';
import { budget, CallBudgets, type RateLimit } from './rate-limit.js';

const answer: Ask = (_call, done) => done(fakeResult());

function setUp(...inner: Stage[]) {
  const clock = new FakeClock();
  const principals = new Map<string, RateLimit>();
  const roles = new Map<string, RateLimit>();
  const budgets = new CallBudgets(clock, () => ({ principals, roles }));
  let denies = false;
  const guard = () => (denies ? ({ allow: false, reason: 'no' } as const) : ({ allow: true } as const));
  const send = staged(
    allow(() => [guard]),
    budget(budgets),
    ...inner,
  )(answer);
  return { clock, budgets, principals, roles, send: promised(send), deny: (is: boolean) => (denies = is) };
}

const many = 20;

/** The number of calls in a row that pass from now on, up to `many`. */
async function passes(send: ReturnType<typeof promised>): Promise<number> {
  for (let passed = 0; passed < many; passed++) {
    const outcome = await send(fakeCall()).catch((error: HostError) => error);
    if (outcome instanceof HostError) return passed;
  }
  return many;
}

describe('a budget for a piece of work', () => {
  test('AC-BG1 without a budget nothing is counted and nothing refused', async () => {
    const { send } = setUp();
    for (let i = 0; i < 5; i++) expect(await passes(send)).toBe(many);
  });

  test('AC-BG2 with a budget of two the third call is refused and counted, and its error names the budget', async () => {
    const { budgets, send } = setUp();
    await budgets.withBudget({ calls: 2 }, async () => {
      await send(fakeCall());
      await send(fakeCall());
      const error = await failureOf(send(fakeCall()));
      expect(error.code).toBe('budget_exceeded');
      expect(error.message).toBe("server 'github': call 3 is over budget, this work may make 2 calls");
      expect(error.details).toMatchObject({ reason: 'mcp_calls', limit: 2, actual: 3, execution: 'not_executed' });
      expect(error.retryable).toBe(false);
      expect((await failureOf(send(fakeCall()))).details).toMatchObject({ limit: 2, actual: 4 });
    });
    expect(await passes(send)).toBe(many);
  });

  test('AC-BG3 an inner budget starts at zero, hides the outer one, and restores it unchanged', async () => {
    const { budgets, send } = setUp();
    await budgets.withBudget({ calls: 5 }, async () => {
      await send(fakeCall());
      await budgets.withBudget({ calls: 1 }, async () => {
        await send(fakeCall());
        expect((await failureOf(send(fakeCall()))).details).toMatchObject({ limit: 1, actual: 2 });
      });
      expect(await passes(send)).toBe(4);
    });
  });

  test('the outer budget is restored also when the inner work throws', async () => {
    const { budgets, send } = setUp();
    await budgets.withBudget({ calls: 5 }, async () => {
      expect(() =>
        budgets.withBudget({ calls: 1 }, () => {
          throw new Error('broken');
        }),
      ).toThrow('broken');
      expect(await passes(send)).toBe(5);
    });
  });

  test('AC-BG4 an answer from the cache is charged', async () => {
    const { budgets, send } = setUp({ enter: (_next, back) => (call) => back(call, fakeResult('{}', { run: 0 })) });
    await budgets.withBudget({ calls: 2 }, async () => {
      await send(fakeCall());
      await send(fakeCall());
      await expect(send(fakeCall())).rejects.toThrow('over budget');
    });
  });

  test('AC-BG5 a denied call is not charged', async () => {
    const { budgets, send, deny } = setUp();
    deny(true);
    await budgets.withBudget({ calls: 2 }, async () => {
      await expect(send(fakeCall())).rejects.toThrow('denied');
      deny(false);
      expect(await passes(send)).toBe(2);
    });
  });

  test('AC-BG6 a retry behind the budget is not charged again', async () => {
    let again: Send | undefined;
    const { budgets, send } = setUp({
      enter: (next) => {
        again = next;
        return next;
      },
      leave: (back) => (call, outcome) => {
        const repeat = again ?? ((repeated: typeof call) => back(repeated, outcome));
        again = undefined;
        repeat(call);
      },
    });
    await budgets.withBudget({ calls: 1 }, async () => {
      await send(fakeCall());
      expect((await failureOf(send(fakeCall()))).details).toMatchObject({ limit: 1, actual: 2 });
    });
  });

  test('D-27 interleaved pieces of work count separately', async () => {
    const { budgets, send } = setUp();
    const work = (calls: number) =>
      budgets.withBudget({ calls }, async () => {
        const spent: (number | undefined)[] = [];
        for (let i = 0; i < 5; i++) {
          await new Promise(setImmediate);
          await send(fakeCall()).catch(({ details }: HostError) => spent.push(details.actual));
        }
        return spent;
      });
    expect(await Promise.all([work(2), work(3)])).toEqual([
      [3, 4, 5],
      [4, 5],
    ]);
  });

  test('of a thousand calls at once exactly as many pass as the budget allows', async () => {
    const { budgets, send } = setUp();
    const outcomes = await budgets.withBudget({ calls: 10 }, () =>
      Promise.allSettled(Array.from({ length: 1_000 }, () => send(fakeCall()))),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(10);
  });

  test('a budget of zero refuses the first call', async () => {
    const { budgets, send } = setUp();
    await expect(budgets.withBudget({ calls: 0 }, () => send(fakeCall()))).rejects.toThrow('over budget');
  });

  test.each([-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])('D-29 a budget of %d is refused', (calls) => {
    const { budgets } = setUp();
    expect(() => budgets.withBudget({ calls }, () => 1)).toThrow('calls must be a whole number');
  });

  test('two hosts in one process do not share a budget', async () => {
    const one = setUp();
    const other = setUp();
    await one.budgets.withBudget({ calls: 0 }, async () => {
      expect([await passes(one.send), await passes(other.send)]).toEqual([0, many]);
    });
  });
});

describe('per principal', () => {
  const ann = fakeCall();
  const bob = fakeCall({ principal: fakePrincipal('bob', 'dev') });

  test('a role’s rate limit is counted for each principal separately, and starts again after the window', async () => {
    const { clock, roles, send } = setUp();
    roles.set('dev', { calls: 2, windowMs: 1_000 });
    await send(ann);
    clock.advance(400);
    await send(ann);
    const error = await failureOf(send(ann));
    expect(error.details).toMatchObject({ reason: 'mcp_calls', limit: 2, actual: 3, retryAfterMs: 600 });
    await send(bob);
    clock.advance(600);
    await send(ann);
  });

  test('a principal’s own rate limit has priority over that of its role', async () => {
    const { principals, roles, send } = setUp();
    roles.set('dev', { calls: 1, windowMs: 1_000 });
    principals.set('ann', { calls: 3, windowMs: 1_000 });
    for (let i = 0; i < 3; i++) await send(ann);
    await expect(send(ann)).rejects.toThrow('over budget');
    await send(bob);
    await expect(send(bob)).rejects.toThrow('over budget');
  });

  test('two roles have two windows: the end of the shorter window does not end the longer one', async () => {
    const { clock, roles, send } = setUp();
    roles.set('dev', { calls: 2, windowMs: 3_600_000 });
    roles.set('ops', { calls: 2, windowMs: 1_000 });
    const asOps = fakeCall({ principal: fakePrincipal('ann', 'ops') });
    await send(ann);
    await send(ann);
    await send(asOps);
    const error = await failureOf(send(ann));
    expect(error.message).toMatch(/its caller may make 2 calls in 1h$/);
    expect(error.details).toMatchObject({ actual: 3, retryAfterMs: 3_600_000 });
    clock.advance(1_000);
    await send(asOps);
    expect((await failureOf(send(ann))).details).toMatchObject({ actual: 4, retryAfterMs: 3_599_000 });
  });

  test('a call that the budget of the work refuses is not counted in the window', async () => {
    const { budgets, roles, send } = setUp();
    roles.set('dev', { calls: 1, windowMs: 1_000 });
    await budgets.withBudget({ calls: 0 }, () => failureOf(send(ann)));
    expect(await passes(send)).toBe(1);
  });

  test('a changed rate limit applies from the next call on', async () => {
    const { roles, send } = setUp();
    roles.set('dev', { calls: 1, windowMs: 3_600_000 });
    await send(ann);
    await expect(send(ann)).rejects.toThrow('over budget');
    roles.set('dev', { calls: 1, windowMs: 1_000 });
    await send(ann);
    roles.delete('dev');
    await send(ann);
  });

  test('of ten thousand and one principals the oldest window is forgotten and the newest still counts', async () => {
    const { roles, send } = setUp();
    roles.set('dev', { calls: 1, windowMs: 1_000 });
    const calls = Array.from({ length: 10_001 }, (_, i) => fakeCall({ principal: fakePrincipal(`p${i}`, 'dev') }));
    for (const call of calls) await send(call);
    const [first, second] = calls;
    await expect(send(calls.at(-1) ?? ann)).rejects.toThrow('over budget');
    await expect(send(second ?? ann)).rejects.toThrow('over budget');
    await send(first ?? ann);
  });
});

test('reading the remaining budget charges nothing', () => {
  const clock = new FakeClock();
  const rateLimits = { principals: new Map(), roles: new Map([['dev', { calls: 2, windowMs: 1_000 }]]) };
  const budgets = new CallBudgets(clock, () => rateLimits);
  const principal = { id: 'ada', role: 'dev', scopes: [] };
  expect(budgets.leftOf({ ...principal, role: undefined })).toBeUndefined();
  expect(budgets.leftOf(principal)).toEqual({ calls: 2, windowMs: 1_000, left: 2, resetsInMs: undefined });
  budgets.charge({ principal, server: 'git', tool: undefined });
  clock.advance(400);
  expect(budgets.leftOf(principal)).toEqual({ calls: 2, windowMs: 1_000, left: 1, resetsInMs: 600 });
  clock.advance(600);
  expect(budgets.leftOf(principal)).toMatchObject({ left: 2, resetsInMs: undefined });
});
