/**
 * A call of a worker as a task: which tool is meant, whether the worker may call it, and the call itself.
 * Not here: when it runs and what is recorded (call-runner.ts).
 *
 * Invariant: role and tool are looked up each time they are asked for, so a changed configuration applies to calls that wait.
 */
import { isHostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { BrokerEvent } from '../broker-events.js';
import type { CallId } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { type CallRequest, requestDigest, traceMeta } from '../protocol/messages.js';
import { errorBody, resultBody } from '../protocol/reply-body.js';
import { tooLarge } from './call-errors.js';
import type { Manifests } from './manifests.js';
import type { CallTask } from './running-call.js';
import type { ServedHost, WorkerSession } from './transport.js';

export interface WorkerCallPorts {
  readonly host: ServedHost;
  readonly manifests: Pick<Manifests, 'find'>;
  readonly onEvent: (event: BrokerEvent) => void;
}

export const idOf = ({ name, epoch }: WorkerSession, key: string): CallId => ({ worker: name, epoch, key });

export function workerCall(
  from: WorkerSession,
  request: CallRequest,
  deadlineAtMs: number,
  ports: WorkerCallPorts,
): CallTask {
  const { host, manifests, onEvent } = ports;
  const { key, server, tool, args, isCallersKey, sentBefore, trace, wantsProgress } = request;
  const find = () => manifests.find(from.identity(), server, tool);
  let isDenialReported = false;
  return {
    ...{ id: idOf(from, key), server, tool, digest: requestDigest(server, tool, args), bytes: args.length },
    ...{ isCallersKey, sentBefore, deadlineAtMs },
    isRepeatable() {
      const target = find();
      return !isHostError(target) && host.mayRunTwice(target.server, target.tool);
    },
    refusal() {
      const target = find();
      if (!isHostError(target)) return undefined;
      if (target.code === 'denied' && !isDenialReported) {
        isDenialReported = true;
        onEvent({ kind: 'denied', worker: from.name, server, tool });
      }
      return target;
    },
    async execute(signal, timeMs) {
      const target = find();
      if (isHostError(target)) throw target;
      const onProgress = (params: Buffer): void => {
        if (params.length <= brokerLimits.progressBytes) from.send({ op: 'progress', key, params });
      };
      const { bytes, era } = await host.call(target.server, target.tool, args, {
        principal: { id: from.name, role: from.identity()?.role, scopes: [] },
        // A client of the gateway may have the same name.
        instance: compositeKey('worker', from.name),
        ...{ deadlineMs: timeMs, signal },
        ...(trace ? { meta: traceMeta(trace) } : {}),
        ...(wantsProgress ? { onProgress } : {}),
      });
      if (bytes.length <= brokerLimits.replyBytes) return resultBody(bytes, era);
      return errorBody(tooLarge(target, bytes.length, brokerLimits.replyBytes));
    },
  };
}
