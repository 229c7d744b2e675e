/**
 * One call on its way through the policy, and the shape of the stages it passes.
 * A stage either refuses, answers by itself, or hands the call on; it never parses the arguments or the result, except where
 * its own job is to look into them.
 *
 * A stage has two halves, the way in and the way back. What it must remember in between is written on the call: a promise or
 * even a closure for each stage and call would cost more than everything that the stages decide.
 *
 * Invariant: exactly one outcome is told for each call, now or later. A stage throws only before it has taken anything that
 * is to be given back, and then tells nothing.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { CauseHandlers } from '../wire/attribution.js';
import type { Era } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import type { Ticket } from './breaker.js';
import type { CallTrail } from './call-events.js';
import type { GatedCircuit } from './gated-circuit.js';

/** Who calls, as a credential says; never as a message claims. */
export interface Principal {
  readonly id: string;
  readonly role: string | undefined;
  readonly scopes: readonly string[];
}

/** The embedding application itself, under no role. No other principal may have its id. */
export const embedder: Principal = { id: 'embedder', role: undefined, scopes: [] };

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

/** What stages write down of a call on its way in, for its way back: each its own, and none reads another's. */
export class StageNotes {
  // Declared only: made one by one they would cost twice as much.
  /** cache-stage.ts: of the server when the call was sent. Undefined: the answer is not kept. */
  declare fingerprint: string | undefined;
  /** cache-stage.ts: when the call was sent. */
  declare epoch: number;
  /** cache-stage.ts: of the arguments, once somebody needed it; null when they have none. */
  declare argumentsHash: string | null | undefined;
  /** cache-stage.ts: who is told, instead of the stages before, how a call went that others may share. */
  declare landed: Done | undefined;
  /** tool-throttle.ts: how many there had been. */
  declare pauses: number;
  /** gate.ts: the breaker that admitted it, with its connection. */
  declare circuit: GatedCircuit | undefined;
  declare ticket: Ticket | undefined;
  /** gate.ts, written by the last stage: when it was last sent; infinite once the server has asked its caller something. */
  declare sentAtMs: number;
  /** concurrency.ts: where it has its place. */
  declare slots: { give(): void } | undefined;

  constructor() {
    this.fingerprint = undefined;
    this.epoch = 0;
    this.argumentsHash = undefined;
    this.landed = undefined;
    this.pauses = 0;
    this.circuit = undefined;
    this.ticket = undefined;
    this.sentAtMs = 0;
    this.slots = undefined;
  }
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
  readonly notes: StageNotes;
}

/** The same call but for these facts. Copied by this alone: some members of a call are worked out only when they are asked for. */
export const withChanges = (call: Call, changes: Partial<Call>): Call => ({
  ...call,
  requestId: call.requestId,
  isFresh: false,
  notes: new StageNotes(),
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
/** A call on its way in. */
export type Send = (call: Call) => void;
/** A call on its way back. */
export type Over = (call: Call, outcome: Outcome) => void;

export interface Stage {
  /** The way in: hands the call on to `next`, or tells `back` how it ended here. */
  enter(next: Send, back: Over): Send;
  /** The way back of calls that were handed on. Left out by who has nothing to do then. */
  leave?(back: Over): Over;
}

/** The first stage is the outermost. `last` sends the call and tells how it went; `end` is where every outcome comes out. */
export const pipeline =
  (...stages: readonly Stage[]) =>
  (last: (back: Over) => Send, end: Over): Send => {
    let back = end;
    const ways = stages.map((stage) => {
      const own = back;
      back = stage.leave?.(back) ?? back;
      return (next: Send) => stage.enter(next, own);
    });
    return ways.reduceRight((next, enter) => enter(next), last(back));
  };
