/**
 * Refuses a call to a tool whose definition was not approved, before the call is charged or sent.
 * Not here: how a tool comes by its status (pins.ts).
 *
 * Invariant: `pinRefusal` is the one rule; a list that marks what it refuses marks exactly what a call is refused for.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Call, Stage } from './operation.js';
import type { PinStatus } from './pin-records.js';
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

/** What is known of a tool at this instant. */
export interface PinFacts {
  readonly statusOf: (server: string, tool: string) => PinStatus;
  readonly policyOf: (server: string) => PinPolicy;
  /** Hashes of the approved and of the listed version, for the error alone. */
  readonly hashesOf?: (server: string, tool: string) => { readonly oldHash?: string; readonly newHash?: string };
}

/** The error a call of this tool is refused with now; undefined when it passes. */
export function quarantine(facts: PinFacts, server: string, tool: string): HostError | undefined {
  const status = facts.statusOf(server, tool);
  // Nearly every call: no policy refuses it.
  if (status === 'approved') return undefined;
  const reason = pinRefusal(status, facts.policyOf(server));
  return reason === undefined ? undefined : refusal(server, tool, reason, facts.hashesOf?.(server, tool));
}

/** Asked at each call, so that a list or a change of the configuration counts from the next call on. */
export const pinned = (facts: PinFacts): Stage<Call> => ({
  enter: (next, back) => (call) => {
    const error = quarantine(facts, call.server, call.tool);
    return error ? back(call, error) : next(call);
  },
});

const stories: Readonly<Record<PinRefusal, string>> = {
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
  return new HostError('schema_changed', `server '${shown(server)}': tool '${shown(tool)}' ${stories[reason]}`, {
    server,
    tool,
    reason,
    ...hashes,
    phase: 'queued',
    execution: 'not_executed',
    hint: "ask the operator to compare the tool's definitions and approve the hash that is listed now",
  });
}
