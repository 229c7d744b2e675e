/**
 * The way of every request that is no call of a tool: breaker, one of the server's places, and a token that is renewed once.
 * Not here: who may (the guards), who pays (budgets), the connection, which `attempt` asks the supervisor for.
 */
import type { Clock } from '../kernel/clock.js';
import { throughGate } from '../policy/list-gate.js';
import { type SlotLimits, type SlotQuestion, throughSlot } from '../policy/list-slot.js';
import type { ManagedServer } from './managed-server.js';

export function admitted<T>(
  managed: ManagedServer,
  clock: Clock,
  question: SlotQuestion,
  { deadlineAtMs: untilMs, signal }: SlotLimits,
  attempt: (limits: SlotLimits) => Promise<T>,
  /** The connection that it goes to is lost. */
  isOver?: () => boolean,
): Promise<T> {
  const run = (deadlineAtMs: number) => {
    const limits: SlotLimits = { deadlineAtMs, signal };
    return throughSlot(managed.slots, question, limits, () => managed.renewing(limits, () => attempt(limits)));
  };
  return throughGate(question.server, managed.breaker, clock, untilMs, run, isOver);
}
