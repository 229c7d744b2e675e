/**
 * One call on its way through the policy, and the shape of the stages it passes.
 * A stage either refuses, answers by itself, or hands the call on; it never parses the arguments or the result, except where
 * its own job is to look into them.
 *
 * Outcomes are told by a function and not by a promise: a call passes seven stages that all want to know how it ended, and
 * seven promises cost more than everything else that happens to it here.
 *
 * Invariant: exactly one outcome is told for each call, now or later. A stage throws only before it has taken anything that
 * is to be given back, and then tells nothing.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { CauseHandlers } from '../wire/attribution.js';
import type { Era } from '../wire/channel.js';
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

/** What a relayed call has beside its own words. */
export interface CallRelay extends CauseHandlers {
  /** Members of the caller's `_meta`, as JSON without the braces. */
  readonly meta?: string | undefined;
  /** Further members of `params`: the call goes on with something that was begun before. It is neither kept nor shared. */
  readonly members?: string | undefined;
  /** What a modern server is told that its client can do: one JSON object. */
  readonly capabilities?: string | undefined;
  /** Whose own instance of the server is meant. */
  readonly instance?: string | undefined;
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
  readonly signal: CancelSignal | undefined;
  readonly idempotencyKey: string | undefined;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  /** How often the caller itself has sent this call before; above 0 nothing is repeated here. */
  readonly attempt: number;
  /**
   * True in the tick in which it was made: what was looked at on its way need not be looked at again. Whoever hands on a
   * copy of a call does not vouch for that.
   */
  readonly isFresh: boolean;
  /** On the host's clock. */
  readonly madeAtMs: number;
  /** Undefined for whoever calls in its own name. */
  readonly relay?: CallRelay | undefined;
  /** Ends the call as it stands, past all stages: only for when telling its outcome failed. */
  readonly abandon?: ((error: Error) => void) | undefined;
  /** Written by whoever sends it; undefined when nobody wants to know. */
  readonly trail?: CallTrail | undefined;
}

/** The same call but for these facts. Copied by this alone: some members of a call are worked out only when they are asked for. */
export const withChanges = (call: Call, changes: Partial<Call>): Call => ({
  ...call,
  requestId: call.requestId,
  isFresh: false,
  ...changes,
});

/** What a tool answered. A class, so that the one object made for an answer is also what its caller gets. */
export class CallResult {
  /** The result object of `tools/call`, as the server wrote it. */
  readonly bytes: Buffer;
  readonly isError: boolean;
  /** The run of the server that answered; 0 for a cached answer. */
  readonly run: number;
  /** False: the server surely said nothing about keeping it, or it must not be kept whatever it said. */
  readonly mayHaveTtl: boolean;
  /** In whose words it is written. */
  readonly era: Era;

  constructor(bytes: Buffer, isError: boolean, run: number, mayHaveTtl: boolean, era: Era) {
    this.bytes = bytes;
    this.isError = isError;
    this.run = run;
    this.mayHaveTtl = mayHaveTtl;
    this.era = era;
  }

  get fromCache(): boolean {
    return this.run === 0;
  }

  json(): unknown {
    return JSON.parse(this.bytes.toString('utf8'));
  }
}

/** How a call ended: with an answer, or a HostError. Any other error is a mistake of ours, handed on as it is. */
export type Outcome = CallResult | HostError | Error;
export type Done = (outcome: Outcome) => void;
export type Send = (call: Call, done: Done) => void;
export type Stage = (next: Send) => Send;

/** For whoever waits for one call: what a stage throws is an outcome too. */
export const sent = (send: Send, call: Call): Promise<CallResult> =>
  new Promise((resolve, reject) => {
    send(call, (outcome) => (outcome instanceof Error ? reject(outcome) : resolve(outcome)));
  });

/** The first stage is the outermost. */
export const pipeline =
  (...stages: readonly Stage[]): Stage =>
  (send) =>
    stages.reduceRight((next, stage) => stage(next), send);
