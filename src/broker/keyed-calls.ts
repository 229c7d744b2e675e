/**
 * Runs the calls of a host that have an idempotency key, through the same log and the same decisions as calls of workers.
 * Not here: the log (calls/), the decisions (service/).
 *
 * Invariants: the row is durable before the first byte is sent. A key belongs to one principal. One caller's cancel or deadline does not
 * end a call that others have joined.
 */
import { hash } from 'node:crypto';
import type { ToolResult } from '../host/host-interface.js';
import type { KeyedCall, KeyedCalls } from '../host/keyed-calls.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { newId } from '../kernel/random.js';
import { memberBytes } from '../wire/json-members.js';
import type { CallId, CallLog } from './calls/call-log.js';
import { brokerLimits } from './protocol/limits.js';
import { requestDigest } from './protocol/messages.js';
import { errorBody, readReplyBody, resultBody } from './protocol/reply-body.js';
import { cancelled, keyConflict, tooLarge, uncertain } from './service/call-errors.js';
import { CallRunner } from './service/call-runner.js';
import type { Caller, CallTask } from './service/running-call.js';

/** Each principal has bounds of its own, as a worker has. Names of workers begin with a letter or digit. */
const idOf = (principal: string, key: string): CallId => ({
  ...{ worker: `_${principal}`, epoch: '0', key: hash('sha256', key, 'base64url') },
});
/** How often a call that another host runs is looked up. */
const lookMs = 500;
/** Time to record the outcomes of calls that a close has cancelled. */
const recordMs = 1_000;

/** `isOwnLog`: the log is closed with the calls. */
export function keyedCalls(
  log: CallLog,
  clock: Clock,
  isOwnLog: boolean,
  onProblem: (error: unknown) => void,
): KeyedCalls {
  const runner = new CallRunner({ log, clock, onProblem });
  return {
    async knows({ principal, key }) {
      const id = idOf(principal, key);
      return runner.has(id) || (await log.find(id)) !== undefined;
    },
    run: (call) => new WaitingCaller(call, { log, clock, runner }).result,
    async close() {
      await runner.stop(0, recordMs);
      if (isOwnLog) await log.close();
    },
  };
}

interface Parts {
  readonly log: CallLog;
  readonly clock: Clock;
  readonly runner: CallRunner;
}

class WaitingCaller implements Caller {
  readonly result: Promise<ToolResult>;
  readonly #call: KeyedCall;
  readonly #parts: Parts;
  readonly #id: CallId;
  readonly #party = newId();
  readonly #deadlineAtMs: number;
  #resolve: (result: ToolResult) => void = () => {};
  #reject: (error: HostError) => void = () => {};
  /** A result that is too large for the log. */
  #large: ToolResult | undefined;
  #stopWaiting = () => {};
  #cancelLook = () => {};

  constructor(call: KeyedCall, parts: Parts) {
    this.#call = call;
    this.#parts = parts;
    this.#id = idOf(call.principal, call.key);
    this.#deadlineAtMs =
      parts.clock.nowMs() + Math.min(call.deadlineMs ?? Number.POSITIVE_INFINITY, brokerLimits.deadlineMs);
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#wait();
    this.#send();
  }

  receipt(): void {}

  refuse(error: HostError): void {
    this.#end(() => this.#reject(error));
  }

  reply(body: Buffer): void {
    const { log } = this.#parts;
    const read = readReplyBody(body);
    this.#end(() => {
      if (read.kind === 'result') this.#resolve(resultOf(read));
      else if (this.#large) this.#resolve(this.#large);
      else {
        // A call that did not run may be made again with its key.
        log.acknowledge(this.#id);
        this.#reject(read.error);
      }
    });
  }

  /** Another host runs the call. */
  ended(): void {
    const { clock } = this.#parts;
    if (this.#call.signal?.aborted) return this.refuse(cancelled().with({ execution: 'uncertain' }));
    if (clock.nowMs() + lookMs < this.#deadlineAtMs) {
      this.#cancelLook = clock.at(clock.nowMs() + lookMs, () => this.#send());
      return;
    }
    this.refuse(uncertain(this.#call.server, this.#call.tool, 'host_lost'));
  }

  #send(): void {
    this.#parts.runner.send(this.#task(), this.#party, this);
  }

  #task(): CallTask {
    const { server, tool, args, isRepeatable } = this.#call;
    return {
      ...{ id: this.#id, digest: requestDigest(server, tool, args), isCallersKey: true },
      ...{ sentBefore: undefined, deadlineAtMs: this.#deadlineAtMs, isRepeatable },
      refusal: () => undefined,
      conflict: () => keyConflict(server, tool),
      uncertain: (reason) => uncertain(server, tool, reason),
      execute: async (signal, timeMs) => {
        const given = this.#call.deadlineMs === undefined ? undefined : timeMs;
        const result = await this.#call.execute(signal, given);
        if (result.bytes.length <= brokerLimits.replyBytes) return resultBody(result.bytes, result.era);
        this.#large = result;
        return errorBody(tooLarge({ server, tool }, result.bytes.length, brokerLimits.replyBytes));
      },
    };
  }

  /** Ends this wait on a cancel or at the deadline; the last one to leave cancels the call. */
  #wait(): void {
    const { clock, runner } = this.#parts;
    const { signal } = this.#call;
    const onAbort = () => {
      if (runner.cancel(this.#id, this.#party) !== 'cancelled')
        this.refuse(cancelled().with({ execution: 'uncertain' }));
    };
    const cancelTimer = clock.at(this.#deadlineAtMs + lookMs, () => this.refuse(lateError(this.#call)));
    this.#stopWaiting = () => {
      cancelTimer();
      signal?.removeEventListener('abort', onAbort);
    };
    if (signal?.aborted) queueMicrotask(onAbort);
    else signal?.addEventListener('abort', onAbort, { once: true });
  }

  #end(settle: () => void): void {
    this.#cancelLook();
    this.#stopWaiting();
    this.#stopWaiting = () => {};
    settle();
  }
}

function resultOf({ bytes, era }: Pick<ToolResult, 'bytes' | 'era'>): ToolResult {
  const isError = memberBytes(bytes, 'isError')?.toString() === 'true';
  return { bytes, era, isError, json: () => JSON.parse(bytes.toString('utf8')) as unknown };
}

const lateError = ({ server, tool }: KeyedCall): HostError =>
  new HostError('timeout', `server '${server}': ${tool} was not done at its deadline`, {
    ...{ server, tool, execution: 'uncertain' },
    hint: 'make the call again with the same key to hear its outcome',
  });
