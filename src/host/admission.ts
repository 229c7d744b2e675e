/**
 * The way of every request that is no call of a tool: breaker, one of the server's places, and a token that is renewed once.
 * Not here: who may (the guards), who pays (budgets), the connection, which `attempt` asks the supervisor for.
 */
import type { Clock } from '../kernel/clock.js';
import { throughGate } from '../policy/list-gate.js';
import { type SlotLimits, type SlotQuestion, throughSlot } from '../policy/list-slot.js';
import type { CallTarget } from './call-target.js';
import type { ManagedServer } from './managed-server.js';

export function admitted<T>(
  managed: ManagedServer,
  target: CallTarget,
  clock: Clock,
  question: SlotQuestion,
  limits: SlotLimits,
  attempt: () => Promise<T>,
): Promise<T> {
  const run = () => throughSlot(managed.slots, question, limits, () => managed.renewing(limits, attempt));
  return throughGate(question.server, target.circuit, clock, limits, run);
}
