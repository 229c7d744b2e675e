/**
 * A call of a worker as a task: which tool is meant, whether the worker may call it, and the call itself.
 * Not here: when it runs and what is recorded (call-runner.ts).
 *
 * Invariant: role and tool are looked up each time they are asked for, so a changed configuration applies to calls that wait.
 */
import { type HostError, isHostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { BrokerEvent } from '../broker-events.js';
import type { CallId } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { type CallRequest, requestDigest, traceMeta } from '../protocol/messages.js';
import { errorBody, resultBody } from '../protocol/reply-body.js';
import { ambiguous, notAllowed, notFound, revoked, type Target, tooLarge } from './call-errors.js';
import type { RoleManifest } from './manifests.js';
import type { CallTask } from './running-call.js';
import type { ServedHost, WorkerSession } from './transport.js';

export interface WorkerCallPorts {
  readonly host: ServedHost;
  readonly manifestOf: (role: string | undefined) => RoleManifest;
  readonly isRolelessAllowed: () => boolean;
  readonly onEvent: (event: BrokerEvent) => void;
}

export const idOf = ({ name, epoch }: WorkerSession, key: string): CallId => ({ worker: name, epoch, key });

export function workerCall(
  from: WorkerSession,
  request: CallRequest,
  deadlineAtMs: number,
  ports: WorkerCallPorts,
): CallTask {
  const { host, onEvent } = ports;
  const { key, server, tool, args, isCallersKey, sentBefore, trace, wantsProgress } = request;
  let isDenialReported = false;
  return {
    ...{ id: idOf(from, key), server, tool, digest: requestDigest(server, tool, args), bytes: args.length },
    ...{ isCallersKey, sentBefore, deadlineAtMs },
    isRepeatable() {
      const target = targetOf(request, from, ports);
      return !isHostError(target) && host.mayRunTwice(target.server, target.tool);
    },
    refusal() {
      const target = targetOf(request, from, ports);
      if (!isHostError(target)) return undefined;
      if (target.code === 'denied' && !isDenialReported) {
        isDenialReported = true;
        onEvent({ kind: 'denied', worker: from.name, server, tool });
      }
      return target;
    },
    async execute(signal, timeMs) {
      const target = targetOf(request, from, ports);
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

/** The tool that is meant, or why the worker may not call it. */
function targetOf({ server, tool }: CallRequest, from: WorkerSession, ports: WorkerCallPorts): Target | HostError {
  const { host, manifestOf, isRolelessAllowed } = ports;
  const identity = from.identity();
  if (!identity) return revoked();
  const { name, role } = identity;
  const manifest = manifestOf(role);
  const found = (manifest.byName.get(tool) ?? []).filter((each) => server === undefined || each.server === server);
  if (found.length > 1) return ambiguous(tool);
  const [target] = found;
  if (target) return target;
  const principal = { id: name, role, scopes: [] };
  const servers = server === undefined ? host.names() : [server];
  const isOpen = role !== undefined || isRolelessAllowed();
  if (!isOpen || !servers.some((each) => host.isAllowed(principal, each, tool)))
    return notAllowed(role, server, tool, manifest.denied);
  // The server was not listed yet: the host finds out when it calls.
  if (server !== undefined && host.known(server)?.lists.has('tools/list') === false) return { server, tool };
  return notFound(server, tool);
}
