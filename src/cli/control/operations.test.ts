import { expect, test } from 'vitest';
import type { DeadLetters } from '../../broker/dead-letters.js';
import { deadLetterOperations } from './operations.js';

test('a replay is forced only when the request says so', async () => {
  const asked: unknown[] = [];
  const letters: DeadLetters = {
    list: async () => [],
    revive: async (...args) => asked.push(args) > 0,
    drop: async () => true,
  };
  const { replayLetter } = deadLetterOperations(() => letters);
  const replay = async (request: Record<string, unknown>) => replayLetter?.(request, { emit: () => {} } as never);
  await replay({ seq: 3 });
  await replay({ seq: 4, force: true });
  expect(asked).toEqual([
    [3, { isForced: false }],
    [4, { isForced: true }],
  ]);
  await expect(replay({ seq: 5, force: 'yes' })).rejects.toMatchObject({ code: 'invalid_request' });
});
