/**
 * Refuses a call to a tool with an unapproved definition, before the call is charged or sent.
 * Not here: the status of a tool (pins.ts).
 *
 * Invariant: lists and calls both use `pinRefusal`, so a list marks exactly the tools that a call is refused for.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { quoted } from '../kernel/shell-word.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Call, Stage } from './operation.js';
import type { PinStatus } from './pin-records.js';
import type { PinPolicy } from './pins.js';

export type PinRefusal = 'changed' | 'new' | 'renamed';

/** Reason of the refusal under this policy; undefined if calls pass. */
export function pinRefusal(status: PinStatus, policy: PinPolicy): PinRefusal | undefined {
  switch (status) {
    case 'new':
      return policy.onFirstSight === 'block' ? status : undefined;
    case 'changed':
    case 'renamed':
      return policy.onChange === 'block' ? status : undefined;
    // One session may list less than another; the approved definition has not changed.
    case 'removed':
    case 'approved':
    // The approved text stays in service, so the new wording reaches no model.
    case 'reworded':
      return undefined;
    default:
      return status satisfies never;
  }
}

/** True if a list shows the approved text of the tool instead of the listed text, or omits the tool if no text was approved. */
export const showsApproved = (status: PinStatus, policy: PinPolicy): boolean =>
  pinRefusal(status, policy) !== undefined || (status === 'reworded' && policy.onChange === 'block');

export interface PinFacts {
  readonly statusOf: (server: string, tool: string) => PinStatus;
  readonly policyOf: (server: string) => PinPolicy;
  readonly hashesOf?: (server: string, tool: string) => { readonly oldHash?: string; readonly newHash?: string };
}

/** The refusal of a call to this tool now; undefined if it passes. */
export function pinRefusalError(facts: PinFacts, server: string, tool: string): HostError | undefined {
  const status = facts.statusOf(server, tool);
  // Fast path of nearly every call.
  if (status === 'approved') return undefined;
  const reason = pinRefusal(status, facts.policyOf(server));
  return reason === undefined ? undefined : refusal(server, tool, reason, facts.hashesOf?.(server, tool));
}

/** Evaluated for each call, so a new list or configuration applies to the next call. */
export const checkPins = (facts: PinFacts): Stage<Call> => ({
  enter: (next, back) => (call) => {
    const error = pinRefusalError(facts, call.server, call.tool);
    return error ? back(call, error) : next(call);
  },
});

const refusalTexts: Readonly<Record<PinRefusal, string>> = {
  changed: 'differs from the definition that was approved',
  new: 'has not been approved yet',
  renamed: 'is a known tool under another name',
};

function refusal(
  server: string,
  tool: string,
  reason: PinRefusal,
  hashes: { readonly oldHash?: string; readonly newHash?: string } = {},
): HostError {
  const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);
  return new HostError('schema_changed', `server '${shown(server)}': tool '${shown(tool)}' ${refusalTexts[reason]}`, {
    server,
    tool,
    reason,
    ...hashes,
    phase: 'queued',
    execution: 'not_executed',
    hint: `ask the operator to compare the definitions: hostler approve ${quoted(`${shown(server)}/${shown(tool)}`)}`,
  });
}
