/**
 * One call on its way through the policy, and the shape of the stages it passes.
 * A stage either refuses (throws a HostError), answers by itself, or hands the call on; it never parses the arguments or
 * the result, except where its own job is to look into them.
 */
import type { JsonText } from '../wire/frame.js';
import type { CallTrail } from './call-events.js';

/** Who calls, as a credential says; never as a message claims. */
export interface Principal {
  readonly id: string;
  readonly role: string | undefined;
  readonly scopes: readonly string[];
}

/** What is known of a tool before it is called; absent hints have the protocol's defaults. */
export interface ToolTraits {
  readonly isReadOnly: boolean;
  readonly isIdempotent: boolean;
  /** The operator vouches for this server's annotations, and the pinned definition still matches. */
  readonly isTrusted: boolean;
}

export interface Call {
  readonly requestId: string;
  readonly principal: Principal;
  readonly server: string;
  readonly tool: string;
  /** The text of one JSON object. */
  readonly args: JsonText;
  /** On the host's clock; waiting anywhere on the way counts. */
  readonly deadlineAtMs: number;
  readonly signal: AbortSignal | undefined;
  readonly idempotencyKey: string | undefined;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  /** How often the caller itself has sent this call before; above 0 nothing is repeated here. */
  readonly attempt: number;
  /** Written by whoever sends it; undefined when nobody wants to know. */
  readonly trail?: CallTrail | undefined;
}

export interface CallResult {
  /** The result object of `tools/call`, as the server wrote it. */
  readonly bytes: Buffer;
  readonly isError: boolean;
  readonly fromCache: boolean;
  /** The run of the server that answered; 0 for a cached answer. */
  readonly run: number;
}

export type Send = (call: Call) => Promise<CallResult>;
export type Stage = (next: Send) => Send;

/** The first stage is the outermost. */
export const pipeline =
  (...stages: readonly Stage[]): Stage =>
  (send) =>
    stages.reduceRight((next, stage) => stage(next), send);
