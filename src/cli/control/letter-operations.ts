/** Messages that could not be delivered, as an operator asks about them through the control socket. */
import { z } from 'zod';
import type { DeadLetters } from '../../broker/dead-letters.js';
import { HostError } from '../../kernel/errors.js';
import type { Operations } from './control-server.js';

const oneLetter = z.object({ seq: z.int().min(0), force: z.boolean().default(false) });

/** `of` is asked each time: a broker may not be there yet, or not at all. */
export function letterOperations(of: () => DeadLetters | undefined): Operations {
  const letters = (): DeadLetters => {
    const found = of();
    if (found) return found;
    throw new HostError('invalid_request', 'there are no dead letters here', {
      reason: 'no_broker',
      hint: 'ask the Hostler that runs the broker; with NATS, any host of it',
    });
  };
  const read = (request: unknown): z.output<typeof oneLetter> => {
    const parsed = oneLetter.safeParse(request);
    if (parsed.success) return parsed.data;
    throw new HostError('invalid_request', 'the number of the letter is missing', {
      field: 'seq',
      hint: 'hostler letters shows the numbers',
    });
  };
  return {
    letters: async (_, { tell }) => {
      const all = await letters().list();
      for (const letter of all) tell(letter);
      return { letters: all.length };
    },
    replayLetter: async (request) => {
      const { seq, force } = read(request);
      return { isDone: await letters().revive(seq, { isForced: force }) };
    },
    dropLetter: async (request) => ({ isDone: await letters().drop(read(request).seq) }),
  };
}
