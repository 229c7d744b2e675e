/**
 * One operation on a server (a tool call, a list, a read or another request) and the shape of the stages that it passes.
 * A stage refuses, answers by itself, or hands the operation on. Only a stage whose job it is parses arguments or results.
 *
 * A stage has two halves, `enter` and `leave`. What it needs in between is stored on the operation (`StageState`): a promise
 * or a closure for each stage and call would cost more than everything that the stages decide.
 *
 * Invariant: each operation has exactly one outcome, now or later. A stage throws only before it has taken anything that it
 * must give back, and then reports no outcome.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { Era } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import type { Answer, CauseHandlers } from '../wire/peer-interface.js';
import type { GatedCircuit, Ticket } from './breaker.js';
import type { CallTrail } from './policy-events.js';

/** The caller, as a credential names it; never as a message claims. */
export interface Principal {
  readonly id: string;
  readonly role: string | undefined;
  readonly scopes: readonly string[];
}

/** The embedding application itself, under no role. No other principal may have its id. */
export const embedder: Principal = { id: 'embedder', role: undefined, scopes: [] };

/** Annotations of a tool; absent ones have the protocol's defaults. */
export interface ToolTraits {
  readonly isReadOnly: boolean;
  readonly isIdempotent: boolean;
  /** The operator vouches for this server's annotations, and the pinned definition still matches. */
  readonly isTrusted: boolean;
}

/** What a gateway relays with an operation, beside its arguments. */
export interface CallRelay extends CauseHandlers {
  /** Members of the caller's `_meta`, as JSON without the braces. */
  readonly meta?: string | undefined;
  /** Further members of `params`: the call continues an earlier one. It is neither cached nor shared. */
  readonly members?: string | undefined;
  /** Client capabilities for a modern server: one JSON object. */
  readonly capabilities?: string | undefined;
  /** The client whose own instance of the server is meant. */
  readonly instance?: string | undefined;
}

/** What stages store between `enter` and `leave`. Each field belongs to one stage. */
export class StageState {
  /** cache-stage.ts: of the server when the call was sent. Undefined: the answer is not cached. */
  fingerprint: string | undefined = undefined;
  /** cache-stage.ts: epoch of the cache when the operation was sent; undefined before that. */
  epoch: number | undefined = undefined;
  /** cache-stage.ts: of the arguments, once computed; null when they have none. */
  argumentsHash: string | null | undefined = undefined;
  /** cache-stage.ts: receives the outcome of a shared operation instead of the stages before. */
  landed: Done | undefined = undefined;
  /** tool-throttle.ts: pauses so far. */
  pauses = 0;
  /** gate.ts: the breaker that admitted it, with its connection. */
  circuit: GatedCircuit | undefined = undefined;
  ticket: Ticket | undefined = undefined;
  /** gate.ts, set by the last stage: when it was last sent; infinite once the server has requested something of the caller. */
  sentAtMs = 0;
  /** concurrency.ts: where it has its slot. */
  slots: { give(): void } | undefined = undefined;
}

/** `request`: every method without a pipeline of its own, such as `prompts/get` and `completion/complete`. */
export type OperationKind = 'call' | 'list' | 'read' | 'request';

export interface Operation {
  readonly kind: OperationKind;
  readonly requestId: string;
  readonly principal: Principal;
  readonly server: string;
  /** Undefined unless it is a call. */
  readonly tool: string | undefined;
  readonly method: string;
  /** The resource that is read; otherwise empty. */
  readonly uri: string;
  /** One JSON object: the arguments of a call, or the params of a request. */
  readonly args: JsonText | undefined;
  /** On the host's clock; every wait counts. */
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
  readonly idempotencyKey: string | undefined;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  /** How often the caller itself has sent this call before; above 0 nothing is retried here. */
  readonly attempt: number;
  /** True in the tick in which it was made: what earlier stages checked need not be checked again. False in a copy. */
  readonly isFresh: boolean;
  /** On the host's clock. */
  readonly madeAtMs: number;
  /** Undefined for a call that is not relayed. */
  readonly relay?: CallRelay | undefined;
  /** Ends the operation past all stages: only for when a stage failed to report its outcome. */
  readonly abandon?: ((error: Error) => void) | undefined;
  /** Filled by the last stage; undefined when neither events nor traces want it. */
  readonly trail?: CallTrail | undefined;
  readonly stage: StageState;
}

export interface Call extends Operation {
  readonly kind: 'call';
  readonly tool: string;
  readonly args: JsonText;
}

export const isCall = (operation: Operation): operation is Call => operation.kind === 'call';

/** For the details of an error: server, and the tool of a call. */
export const namesOf = ({ server, tool }: Pick<Operation, 'server' | 'tool'>) =>
  tool === undefined ? { server } : { server, tool };

/** A copy with these changes. The only way to copy: some members of an operation are computed on demand. */
export const withChanges = <Op extends Operation>(operation: Op, changes: Partial<Op>): Op => ({
  ...operation,
  requestId: operation.requestId,
  isFresh: false,
  stage: new StageState(),
  ...changes,
});

/** The answer of a tool. A class, so that the one object made for an answer is also what its caller gets. */
export class CallResult {
  /** The result object of `tools/call`, as the server wrote it. */
  readonly bytes: Buffer;
  readonly isError: boolean;
  /** The run of the server that answered; 0 for a cached answer. */
  readonly run: number;
  /** False: it has no `ttlMs`, or must not be cached whatever it has. */
  readonly mayHaveTtl: boolean;
  /** Protocol era of the result. */
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

/** One item of a list; a resource that was read is one item under its URI. */
export interface Item {
  readonly key: string;
  readonly raw: Buffer;
}

/** The answer to a list or a read, and for how long it may be cached. */
export interface ListResult {
  readonly items: readonly Item[];
  readonly ttlMs: number;
  readonly isPublic: boolean;
}

/** The answer to another request, and its protocol era. */
export type EraAnswer = Answer & { readonly era: Era };

export type Result = CallResult | ListResult | EraAnswer;

/** A result, or a HostError. Any other error is a defect of ours, handed on as it is. */
export type Outcome = Result | HostError | Error;
export type Done = (outcome: Outcome) => void;
export type Send<Op extends Operation = Operation> = (operation: Op) => void;
/** Reports the outcome to the stage before. */
export type Over<Op extends Operation = Operation> = (operation: Op, outcome: Outcome) => void;

export interface Stage<Op extends Operation = Operation> {
  /** Hands the operation on to `next`, or reports to `back` how it ended here. */
  enter(next: Send<Op>, back: Over<Op>): Send<Op>;
  /** Sees the outcome of operations that were handed on. */
  leave?(back: Over<Op>): Over<Op>;
}

/** A stage, and the kinds of operation that pass it. */
export type StageRow = readonly [kinds: readonly OperationKind[], stage: Stage];

export const everyKind: readonly OperationKind[] = ['call', 'list', 'read', 'request'];

/** A stage that only calls pass. */
export const forCalls = (stage: Stage<Call>): StageRow => [['call'], stage as unknown as Stage];

/**
 * One chain for each kind, so that no stage looks at the kind of an operation that it never sees. The first row is the
 * outermost stage. `last` sends the operation; every outcome leaves through `end`.
 */
export function pipelines(
  rows: readonly StageRow[],
  last: (back: Over) => Send,
  end: Over,
): Readonly<Record<OperationKind, Send>> {
  const of = (kind: OperationKind) =>
    pipeline(...rows.filter(([kinds]) => kinds.includes(kind)).map(([, stage]) => stage))(last, end);
  return { call: of('call'), list: of('list'), read: of('read'), request: of('request') };
}

export const pipeline =
  (...stages: readonly Stage[]) =>
  (last: (back: Over) => Send, end: Over): Send => {
    let back = end;
    const enters = stages.map((stage) => {
      const own = back;
      back = stage.leave?.(back) ?? back;
      return (next: Send) => stage.enter(next, own);
    });
    return enters.reduceRight((next, enter) => enter(next), last(back));
  };

/** In one buffer of their own: items may be views of a whole page. */
export function copyItems(items: readonly Item[]): Item[] {
  const all = Buffer.allocUnsafeSlow(items.reduce((sum, { raw }) => sum + raw.length, 0));
  let at = 0;
  return items.map(({ key, raw }) => {
    const start = at;
    at += raw.copy(all, at);
    return { key, raw: all.subarray(start, at) };
  });
}
