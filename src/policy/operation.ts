/**
 * One operation on a server (a tool call, a list, a read or another request) and the interface of the stages that it passes.
 * A stage refuses, answers, or passes the operation on. Its halves `enter` and `leave` share data in `StageState`: a promise or
 * closure per stage and call would cost more than all the checks of the stages together.
 *
 * Invariant: each operation has exactly one outcome, now or later. A stage may throw only while it holds no slot or ticket. A
 * stage that throws reports no outcome.
 */

import type { CancelSignal } from '../kernel/cancel-signal.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Era, JsonText } from '../wire/channel.js';
import type { Answer, CauseHandlers } from '../wire/peer-interface.js';
import type { GatedCircuit, Ticket } from './breaker.js';
import type { CallOutcome, CallTrail } from './policy-events.js';

/** The identity of the caller. It comes from the credential, never from the content of a message. */
export interface Principal {
  readonly id: string;
  readonly role: string | undefined;
  readonly scopes: readonly string[];
}

/** The embedding application, without a role. No other principal may have its id. */
export const embedder: Principal = { id: 'embedder', role: undefined, scopes: [] };

/** Annotations of a tool; an absent annotation has the default of the protocol. */
export interface ToolTraits {
  readonly isReadOnly: boolean;
  readonly isIdempotent: boolean;
  /** True if the operator trusts the annotations of this server, and the tool has its approved version. */
  readonly isTrusted: boolean;
}

/** Additions of a gateway to an operation. Texts are JSON members without braces (`"a":1,"b":2`) and are not validated. */
export interface CallRelay extends CauseHandlers {
  /** Members of the caller's `_meta`, without the envelope's keys and `progressToken`. */
  readonly meta?: string | undefined;
  /** Further members of `params`, such as `inputResponses`. Such a call is neither cached nor shared. */
  readonly members?: string | undefined;
  /** Client capabilities for a modern server, instead of the host's: one JSON object. */
  readonly capabilities?: string | undefined;
  /** Id of the client among those of its principal. Required for servers with `isolation: "per-client"`; shared servers ignore it. */
  readonly instance?: string | undefined;
}

/** Data of the stages between `enter` and `leave`. Each field belongs to one stage. */
export class StageState {
  /** cache-stage.ts: fingerprint of the server when the call was sent. Undefined: the answer is not cached. */
  fingerprint: string | undefined = undefined;
  /** cache-stage.ts: epoch of the cache when the operation was sent; undefined before that. */
  epoch: number | undefined = undefined;
  /** cache-stage.ts: hash of the arguments; undefined before it is computed, null if they cannot be hashed. */
  argumentsHash: string | null | undefined = undefined;
  /** cache-stage.ts: callback of the single flight. It gets the outcome of a shared operation; the earlier stages do not. */
  onSharedOutcome: Done | undefined = undefined;
  /** throttles.ts: number of pauses when the call was admitted. */
  pauses = 0;
  /** breaker-stage.ts: the breaker that admitted the operation, with its connection. */
  circuit: GatedCircuit | undefined = undefined;
  ticket: Ticket | undefined = undefined;
  /** breaker-stage.ts: time of the last send; Infinity after the server has sent a question to the caller. dispatch.ts sets it. */
  sentAtMs = 0;
  /** concurrency.ts: the limiter whose slot the operation holds. */
  slots: { give(): void } | undefined = undefined;
}

/** `request`: every method without its own operation, such as `prompts/get` and `completion/complete`. */
export type OperationKind = 'call' | 'list' | 'read' | 'request';

export interface Operation {
  readonly kind: OperationKind;
  readonly requestId: string;
  readonly principal: Principal;
  readonly server: string;
  readonly tool: string | undefined;
  readonly method: string;
  /** URI of a read; otherwise empty. */
  readonly uri: string;
  /** One JSON object: arguments of a call, or params of a request. */
  readonly args: JsonText | undefined;
  /** Deadline on the host's clock, including all waits. */
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
  readonly idempotencyKey: string | undefined;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  /** Number of times that the caller has already sent this call; above 0 the host makes no retries. */
  readonly attempt: number;
  /** True until the current tick ends. Later stages then skip checks that earlier stages made. Copies are never fresh. */
  readonly isFresh: boolean;
  readonly madeAtMs: number;
  readonly relay?: CallRelay | undefined;
  /** Ends the operation and bypasses all stages. Use only if a stage failed to report an outcome. */
  readonly abandon?: ((error: Error) => void) | undefined;
  /** Filled by the last stage; undefined if neither events nor traces need it. */
  readonly trail?: CallTrail | undefined;
  readonly stage: StageState;
}

export interface Call extends Operation {
  readonly kind: 'call';
  readonly tool: string;
  readonly args: JsonText;
}

export const isCall = (operation: Operation): operation is Call => operation.kind === 'call';

/** The outcome as events and metrics name it. */
export const outcomeOf = (outcome: CallResult | HostError): CallOutcome =>
  outcome instanceof HostError ? outcome.code : outcome.isError ? 'tool_error' : 'ok';

export const namesOf = ({ server, tool }: Pick<Operation, 'server' | 'tool'>) =>
  tool === undefined ? { server } : { server, tool };

/** For messages: control characters in the names are escaped. */
export const displayName = ({ server, tool, method }: Operation): string =>
  neutraliseLine(`${server}/${tool ?? method}`, LIMITS.quotedChars);

/** Copies an operation with changes. A spread alone would drop members that are getters of the class, such as `requestId`. */
export const withChanges = <Op extends Operation>(operation: Op, changes: Partial<Op>): Op => ({
  ...operation,
  requestId: operation.requestId,
  isFresh: false,
  stage: new StageState(),
  ...changes,
});

/** The answer of a tool. A class, so that the pipeline allocates one object per answer and returns it without a copy. */
export class CallResult {
  constructor(
    /** Result object of `tools/call`, as JSON bytes of the server. */
    readonly bytes: Buffer,
    readonly isError: boolean,
    /** Run of the server that answered; 0 for a cached answer. */
    readonly run: number,
    /** False: the result has no `ttlMs`, or must not be cached even if it has one. */
    readonly mayHaveTtl: boolean,
    /** Protocol era of the server. */
    readonly era: Era,
  ) {}

  get fromCache(): boolean {
    return this.run === 0;
  }

  json(): unknown {
    return JSON.parse(this.bytes.toString('utf8'));
  }
}

/** One item of a list. A read returns one item with the URI as its key. */
export interface Item {
  readonly key: string;
  readonly raw: Buffer;
}

export interface ListResult {
  readonly items: readonly Item[];
  readonly ttlMs: number;
  readonly isPublic: boolean;
}

export type EraAnswer = Answer & { readonly era: Era };

export type Result = CallResult | ListResult | EraAnswer;

/** A result or a HostError. Any other error is a bug in a stage and is passed on unchanged. */
export type Outcome = Result | HostError | Error;
export type Done = (outcome: Outcome) => void;
export type Send<Op extends Operation = Operation> = (operation: Op) => void;
/** Reports the outcome to the previous stage. */
export type Back<Op extends Operation = Operation> = (operation: Op, outcome: Outcome) => void;

export interface Stage<Op extends Operation = Operation> {
  /** Passes the operation to `next`, or reports its outcome to `back`. */
  enter(next: Send<Op>, back: Back<Op>): Send<Op>;
  /** Receives the outcome of operations that were passed to `next`. */
  leave?(back: Back<Op>): Back<Op>;
}

/** A stage and the kinds of operation that pass it. */
export type StageRow = readonly [kinds: readonly OperationKind[], stage: Stage];

export const everyKind: readonly OperationKind[] = ['call', 'list', 'read', 'request'];

export const forCalls = (stage: Stage<Call>): StageRow => [['call'], stage as unknown as Stage];

/**
 * Builds one chain per kind, so that a stage need not check the kind: it gets only the kinds in its row. The first row is the
 * outermost stage. `last` sends the operation; every outcome ends in `end`.
 */
export function pipelines(
  rows: readonly StageRow[],
  last: (back: Back) => Send,
  end: Back,
): Readonly<Record<OperationKind, Send>> {
  const of = (kind: OperationKind) =>
    pipeline(...rows.filter(([kinds]) => kinds.includes(kind)).map(([, stage]) => stage))(last, end);
  return { call: of('call'), list: of('list'), read: of('read'), request: of('request') };
}

export const pipeline =
  (...stages: readonly Stage[]) =>
  (last: (back: Back) => Send, end: Back): Send => {
    let back = end;
    const enters = stages.map((stage) => {
      const own = back;
      back = stage.leave?.(back) ?? back;
      return (next: Send) => stage.enter(next, own);
    });
    return enters.reduceRight((next, enter) => enter(next), last(back));
  };

/** Copies all items into one new buffer. Items may be views that keep a whole page in memory. */
export function copyItems(items: readonly Item[]): Item[] {
  const all = Buffer.allocUnsafeSlow(items.reduce((sum, { raw }) => sum + raw.length, 0));
  let at = 0;
  return items.map(({ key, raw }) => {
    const start = at;
    at += raw.copy(all, at);
    return { key, raw: all.subarray(start, at) };
  });
}

/**
 * The time limit of a caller, or the default. Throws unless it is a number, because JavaScript callers may pass any type.
 * `Infinity` is valid. The stage that waits reports a passed deadline as a timeout.
 */
export function waitMs(deadlineMs: number | undefined, defaultMs: number): number {
  const ms: unknown = deadlineMs ?? defaultMs;
  if (typeof ms === 'number' && !Number.isNaN(ms)) return ms;
  throw new HostError('invalid_request', 'deadlineMs is not a number', {
    field: 'deadlineMs',
    phase: 'queued',
    execution: 'not_executed',
    hint: `give the time limit in milliseconds, or omit deadlineMs for the default of ${defaultMs / 1_000} s`,
  });
}
