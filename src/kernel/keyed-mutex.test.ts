import { expect, test } from 'vitest';
import type { HostError } from './errors.js';
import { KeyedMutex } from './keyed-mutex.js';

/** A task that lasts until the test ends it. */
function turnsOf(waitingMax?: number) {
  const turns = new KeyedMutex(waitingMax);
  const began: string[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const take = (name: string, what: string) =>
    turns.runExclusive(name, () => {
      began.push(what);
      return new Promise<string>((resolve, reject) => {
        ends.set(what, (error) => (error ? reject(error) : resolve(what)));
      });
    });
  const end = (what: string, error?: Error) => ends.get(what)?.(error);
  return { turns, began, take, end };
}

test('a task starts at once; the next task of the same key starts when it has ended, even if it failed', async () => {
  const { began, take, end, turns } = turnsOf();
  const first = take('a', 'a1');
  const second = take('a', 'a2');
  const other = take('b', 'b1');
  expect(began).toEqual(['a1', 'b1']);
  const over = turns.over();
  end('a1', new Error('no'));
  await expect(first).rejects.toThrow('no');
  await Promise.resolve();
  expect(began).toEqual(['a1', 'b1', 'a2']);
  end('a2');
  end('b1');
  expect(await Promise.all([second, other])).toEqual(['a2', 'b1']);
  await over;
  const again = take('a', 'a3');
  expect(began.at(-1)).toBe('a3');
  end('a3');
  expect(await again).toBe('a3');
});

test('the number of tasks that wait for one key is bounded', async () => {
  const { took, began, end } = (() => {
    const all = turnsOf(1);
    return { ...all, took: [all.take('a', 'a1'), all.take('a', 'a2'), all.take('a', 'a3')] as const };
  })();
  const refused = await took[2].catch((error: HostError) => error);
  expect(refused).toMatchObject({ code: 'overloaded', details: { server: 'a', limit: 1, reason: 'changes' } });
  end('a1');
  await took[0];
  await Promise.resolve();
  end('a2');
  await took[1];
  expect(began).toEqual(['a1', 'a2']);
});
