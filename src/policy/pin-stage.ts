/**
 * Refuses a call to a tool whose definition nobody agreed to, before the call is charged or sent.
 * Not here: how a tool comes by its status (pins.ts).
 *
 * Invariant: `pinRefusal` is the one rule; a list that marks what it refuses marks exactly what a call is refused for.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Stage } from './call.js';
import type { PinStatus } from './pin-store.js';
import type { PinPolicy } from './pins.js';

export type PinRefusal = 'changed' | 'new' | 'renamed';

/** Why calls are refused under this policy; undefined when they pass. */
export function pinRefusal(status: PinStatus, policy: PinPolicy): PinRefusal | undefined {
  switch (status) {
    case 'new':
      return policy.onFirstSight === 'block' ? status : undefined;
    case 'changed':
    case 'renamed':
      return policy.onChange === 'block' ? status : undefined;
    // One session may list less than another; the definition that was agreed to has not changed.
    case 'removed':
    case 'approved':
      return undefined;
    default:
      return status satisfies never;
  }
}

/** Both are asked at each call, so that a list or a change of the configuration counts from the next call on. */
export const pinned =
  (statusOf: (server: string, tool: string) => PinStatus, policyOf: (server: string) => PinPolicy): Stage =>
  (next) =>
  (call, done) => {
    const { server, tool } = call;
    const reason = pinRefusal(statusOf(server, tool), policyOf(server));
    return reason === undefined ? next(call, done) : done(refusal(server, tool, reason));
  };

const stories: Readonly<Record<PinRefusal, string>> = {
  changed: 'differs from the definition that was approved',
  new: 'has not been approved yet',
  renamed: 'is a known tool under another name',
};

function refusal(server: string, tool: string, reason: PinRefusal): HostError {
  const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);
  return new HostError('schema_changed', `server '${shown(server)}': tool '${shown(tool)}' ${stories[reason]}`, {
    server,
    tool,
    reason,
    phase: 'queued',
    execution: 'not_executed',
    hint: "ask the operator to compare the tool's definitions and approve the hash that is listed now",
  });
}
