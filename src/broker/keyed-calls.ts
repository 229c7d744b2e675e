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
import { type Clock, sleep } from '../kernel/clock.js';
import { deferred } from '../kernel/deferred.js';
import { HostError } from '../kernel/errors.js';
import { newId } from '../kernel/random.js';
import { memberBytes } from '../wire/json-members.js';
import type { CallId, CallLog } from './calls/call-log.js';
import { brokerLimits } from './protocol/limits.js';
import { requestDigest } from './protocol/messages.js';
import { errorBody, readReplyBody, resultBody } from './protocol/reply-body.js';
import { cancelled, tooLarge, uncertain } from './service/call-errors.js';
import { CallRunner } from './service/call-runner.js';
import type { CallTask } from './service/running-call.js';

/** A principal takes the place of a worker and has bounds of its own. No name of a worker begins with `_`. */
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
    run: (call) => runOnce(call, log, clock, runner),
    async close(graceMs = 0) {
      await runner.stop(graceMs, recordMs);
      if (isOwnLog) await log.close();
    },
  };
}

async function runOnce(call: KeyedCall, log: CallLog, clock: Clock, runner: CallRunner): Promise<ToolResult> {
  const { server, tool, args, signal, deadlineMs = Number.POSITIVE_INFINITY, isRepeatable } = call;
  const id = idOf(call.principal, call.key);
  const party = newId();
  const deadlineAtMs = clock.nowMs() + Math.min(deadlineMs, brokerLimits.deadlineMs);
  let isOver = false;
  /** A result that is too large for the log. */
  let large: ToolResult | undefined;
  const task: CallTask = {
    ...{ id, server, tool, digest: requestDigest(server, tool, args), isCallersKey: true },
    ...{ sentBefore: undefined, deadlineAtMs, isRepeatable },
    refusal: () => undefined,
    execute: async (ownSignal, timeMs) => {
      const result = await call.execute(ownSignal, call.deadlineMs === undefined ? undefined : timeMs);
      if (result.bytes.length <= brokerLimits.replyBytes) return resultBody(result.bytes, result.era);
      large = result;
      return errorBody(tooLarge({ server, tool }, result.bytes.length, brokerLimits.replyBytes));
    },
  };
  /** Resolves with undefined if another host runs the call. */
  const send = () =>
    new Promise<Buffer | undefined>((resolve, reject) => {
      const ended = () => resolve(undefined);
      runner.send(task, party, { receipt() {}, refuse: reject, reply: resolve, ended });
    });
  const outcome = async (): Promise<ToolResult> => {
    for (;;) {
      const body = await send();
      const read = body && readReplyBody(body);
      if (read?.kind === 'result') return resultOf(read);
      if (read && large) return large;
      if (read) {
        // A call that did not run may be made again with the same key.
        log.acknowledge(id);
        throw read.error;
      }
      if (clock.nowMs() + lookMs >= deadlineAtMs) throw uncertain(call, 'host_lost');
      if (!isOver) await sleep(clock, lookMs);
      if (isOver || signal?.aborted) throw cancelledUncertain();
    }
  };
  /** Never resolves. Rejects when this caller gives up. */
  const givenUp = deferred();
  const onAbort = () => {
    // If this was the last caller, the call is cancelled, and this caller gets its outcome.
    if (runner.cancel(id, party) !== 'cancelled') givenUp.reject(cancelledUncertain());
  };
  const cancelTimer = clock.at(deadlineAtMs + lookMs, () => givenUp.reject(lateError(call)));
  if (signal?.aborted) queueMicrotask(onAbort);
  else signal?.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([outcome(), givenUp.promise as Promise<never>]);
  } finally {
    isOver = true;
    cancelTimer();
    signal?.removeEventListener('abort', onAbort);
  }
}

const cancelledUncertain = (): HostError => cancelled().with({ execution: 'uncertain' });

function resultOf({ bytes, era }: Pick<ToolResult, 'bytes' | 'era'>): ToolResult {
  const isError = memberBytes(bytes, 'isError')?.toString() === 'true';
  return { bytes, era, isError, json: () => JSON.parse(bytes.toString('utf8')) as unknown };
}

const lateError = ({ server, tool }: KeyedCall): HostError =>
  new HostError('timeout', `server '${server}': ${tool} was not done at its deadline`, {
    ...{ server, tool, execution: 'uncertain' },
    hint: 'make the call again with the same key to get its outcome',
  });
