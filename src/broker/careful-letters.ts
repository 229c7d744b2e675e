/**
 * Dead letters as operators put them back: each was handed out before, so its call may have run. Where the journal says what
 * became of it, or would if anything had, the host answers from there. Where nobody can know any more, it is put back only for
 * who says that it may run again.
 * Not here: keeping and putting back (the engines, which ask themselves where putting back would make a key run anew), what a
 * host does with it (service/).
 */
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { DeadLetters } from './dead-letters.js';
import { type CallJournal, keyKeptMsMin } from './ports.js';

/** Of which call a letter is. */
export interface LetterCall {
  readonly seq: number;
  readonly mailbox: string;
  readonly id: string;
  readonly sentAtMs: number;
}

export interface CarefulLettersParts {
  readonly letters: DeadLetters;
  calls(): Promise<readonly LetterCall[]>;
  /** Of whichever host gets it; undefined where that is another process's. */
  readonly journal: CallJournal | undefined;
  readonly clock: Clock;
}

export function carefulLetters({ letters, calls, journal, clock }: CarefulLettersParts): DeadLetters {
  const isKnown = async ({ mailbox, id, sentAtMs }: LetterCall): Promise<boolean> => {
    if (journal === undefined) return false;
    // It was claimed after it was sent, and is remembered so long at least: what is not there was not begun.
    if (clock.date().getTime() - sentAtMs < keyKeptMsMin) return true;
    return (await journal.find(mailbox, id)) !== undefined;
  };
  return {
    ...letters,
    async revive(seq, options = {}) {
      const { isForced = false } = options;
      const call = isForced ? undefined : (await calls()).find((each) => each.seq === seq);
      if (call && !(await isKnown(call))) throw mayRunAgain(seq);
      return letters.revive(seq, options);
    },
  };
}

const mayRunAgain = (seq: number): HostError =>
  unforced(seq, 'key_forgotten', 'was handed out before, and nobody here remembers whether it has run');

/** A host began it, and is gone. */
export const beganBefore = (seq: number): HostError =>
  unforced(seq, 'host_lost', 'was begun by a host that ended before it was done, and may have run');

const unforced = (seq: number, reason: string, what: string): HostError =>
  new HostError('outcome_uncertain', `letter ${seq} ${what}`, {
    reason,
    execution: 'uncertain',
    hint: `look at its effect; if it may run (again): hostler dead-letters replay ${seq} --force`,
  });
