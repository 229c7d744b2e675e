import { expect, test } from 'vitest';
import type { DeadLetters } from '../../broker/dead-letters.js';
import { letterOperations } from './letter-operations.js';

test('a replay says whether it is forced, and only when it was said', async () => {
  const asked: unknown[] = [];
  const letters: DeadLetters = {
    list: async () => [],
    revive: async (...words) => asked.push(words) > 0,
    drop: async () => true,
  };
  const { replayLetter } = letterOperations(() => letters);
  const replay = async (request: Record<string, unknown>) => replayLetter?.(request, { tell: () => {} } as never);
  await replay({ seq: 3 });
  await replay({ seq: 4, force: true });
  expect(asked).toEqual([
    [3, { isForced: false }],
    [4, { isForced: true }],
  ]);
  await expect(replay({ seq: 5, force: 'yes' })).rejects.toMatchObject({ code: 'invalid_request' });
});
