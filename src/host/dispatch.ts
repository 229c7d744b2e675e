/**
 * The last stage: sends a call to its server and decides, from what is known of a failure, whether it is sent again.
 * Not here: whether the call is allowed (the stages before), starting the server (supervisor/).
 * Invariant: a call that may have run is sent again only if its tool is read-only or idempotent and trusted.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Call, CallResult, Send } from '../policy/call.js';
import type { ReplayReason } from '../policy/call-events.js';
import { replayReason, toOutcome } from '../policy/replay.js';
import { quote, readRpcError } from '../session/answers.js';
import type { Session } from '../session/session.js';
import { memberText } from '../wire/json-members.js';
import type { ManagedServer } from './managed-server.js';

/** Redacts and neutralises what a server said before it is quoted. */
type Clean = (text: string) => string;

/** Progress may keep a call going, but not for longer than this. */
const callMsMax = 10 * 60_000;

/** A call is about to be sent again; `error` is what the attempt before ended with. */
export type Replayed = (call: Call, attempt: number, reason: ReplayReason, error: HostError) => void;

export const dispatch =
  (serverOf: (name: string) => ManagedServer, clock: Clock, clean: Clean, onReplay: Replayed = () => {}): Send =>
  async (call) => {
    const server = serverOf(call.server);
    using _lease = server.lease();
    const traits = server.traitsOf(call.tool);
    let paid: (() => void) | undefined;
    let mayHaveRun = false;
    for (let attempt = 0; ; attempt++) {
      const outcome = await attemptOnce(server, call, clock, clean).finally(paid);
      if (!(outcome instanceof HostError)) {
        server.retries.succeeded();
        return outcome;
      }
      // A retry is paid for until its outcome is known; a third attempt pays anew.
      const reason = replayReason({
        error: outcome,
        traits,
        attempt,
        callerAttempt: call.attempt,
        deadlineLeftMs: call.deadlineAtMs - clock.nowMs(),
      });
      if (outcome.code === 'timeout') server.retries.timedOut();
      paid = reason && server.retries.take();
      if (!paid) throw toOutcome(mayHaveRun ? uncertain(outcome) : outcome, traits);
      mayHaveRun ||= outcome.details.execution !== 'not_executed';
      if (reason) onReplay(call, attempt + 2, reason, outcome);
    }
  };

/** What the last attempt promises is no promise about the ones before. */
function uncertain(error: HostError): HostError {
  const { code, message, hint, details } = error;
  if (details.execution !== 'not_executed') return error;
  const facts = { ...details, execution: 'uncertain', cause: error } as const;
  return new HostError(code, message, hint === undefined ? facts : { ...facts, hint });
}

async function attemptOnce(
  server: ManagedServer,
  call: Call,
  clock: Clock,
  clean: Clean,
): Promise<CallResult | HostError> {
  try {
    const { connection, run } = await server.supervisor.acquire(call.deadlineAtMs, call.signal);
    if (call.trail) {
      call.trail.attempts++;
      call.trail.run = run;
    }
    return await callOnce(server, connection, run, call, clock, clean);
  } catch (error) {
    if (isHostError(error)) return error;
    throw error;
  }
}

async function callOnce(
  server: ManagedServer,
  session: Session,
  run: number,
  call: Call,
  clock: Clock,
  clean: Clean,
): Promise<CallResult> {
  const { callMs } = server.definition.timeouts;
  const nowMs = clock.nowMs();
  const answer = await session.callTool(call.tool, call.args, {
    deadlineAtMs: Math.min(call.deadlineAtMs, nowMs + callMs),
    signal: call.signal,
    onProgress: call.onProgress,
    extend: { byMs: callMs, untilMs: Math.min(call.deadlineAtMs, nowMs + callMsMax) },
  });
  server.supervisor.succeeded(run);
  if (answer.kind === 'error') throw answered(call, answer.bytes, clean);
  const isError = memberText(answer.bytes, 'isError') === 'true';
  return { bytes: answer.bytes, isError, fromCache: false, run };
}

const invalidParams = -32602;

/** The server answered, if only with an error: it is alive, and the call is over. */
function answered({ server, tool }: Call, bytes: Buffer, clean: Clean): HostError {
  const { code, message } = readRpcError(bytes);
  return new HostError(
    code === invalidParams ? 'invalid_arguments' : 'tool_error',
    `${server}/${tool}: ${quote(message, clean)}`,
    {
      server,
      tool,
      rpcCode: code,
      reason: 'rpc_error',
      phase: 'answered',
      execution: 'uncertain',
    },
  );
}
