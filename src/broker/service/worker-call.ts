/**
 * A call of a worker as a task: which tool is meant, whether the worker may call it, and the call itself.
 * Not here: when it runs and what is recorded (call-runner.ts).
 *
 * Invariant: role and tool are looked up each time they are asked for, so a changed configuration applies to calls that wait.
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { BrokerEvent } from '../broker-events.js';
import type { CallId } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { type CallRequest, requestDigest, type SentBefore, traceMeta } from '../protocol/messages.js';
import { errorBody, resultBody } from '../protocol/reply-body.js';
import {
  ambiguous,
  keyConflict,
  notAllowed,
  notFound,
  revoked,
  type Target,
  tooLarge,
  uncertain,
} from './call-errors.js';
import type { RoleManifest } from './manifests.js';
import type { CallTask } from './running-call.js';
import type { ServedHost, WorkerIdentity, WorkerSession } from './transport.js';

export interface WorkerCallPorts {
  readonly host: ServedHost;
  readonly manifestOf: (role: string | undefined) => RoleManifest;
  readonly isRolelessAllowed: () => boolean;
  readonly onEvent: (event: BrokerEvent) => void;
}

export class WorkerCall implements CallTask {
  readonly id: CallId;
  readonly digest: string;
  readonly bytes: number;
  readonly isCallersKey: boolean;
  readonly sentBefore: SentBefore | undefined;
  #isDenialReported = false;

  constructor(
    private readonly from: WorkerSession,
    private readonly request: CallRequest,
    readonly deadlineAtMs: number,
    private readonly ports: WorkerCallPorts,
  ) {
    const { key, server, tool, args } = request;
    this.id = { worker: from.name, epoch: from.epoch, key };
    this.digest = requestDigest(server, tool, args);
    this.bytes = args.length;
    this.isCallersKey = request.isCallersKey;
    this.sentBefore = request.sentBefore;
  }

  isRepeatable(): boolean {
    const target = this.#target();
    return !isHostError(target) && this.ports.host.mayRunTwice(target.server, target.tool);
  }

  refusal(): HostError | undefined {
    const target = this.#target();
    if (!isHostError(target)) return undefined;
    const { server, tool } = this.request;
    if (target.code === 'denied' && !this.#isDenialReported) {
      this.#isDenialReported = true;
      this.ports.onEvent({ kind: 'denied', worker: this.from.name, server, tool });
    }
    return target;
  }

  conflict(): HostError {
    return keyConflict(this.request.server, this.request.tool);
  }

  uncertain(reason: 'host_lost' | 'store_changed' | 'attempts'): HostError {
    return uncertain(this.request.server, this.request.tool, reason);
  }

  async execute(signal: CancelSignal, timeMs: number): Promise<Buffer> {
    const { args, trace, wantsProgress, key } = this.request;
    const identity = this.from.identity();
    const target = this.#target();
    if (isHostError(target)) throw target;
    const { name, role } = identity as WorkerIdentity;
    const { bytes, era } = await this.ports.host.call(target.server, target.tool, args, {
      principal: { id: name, role, scopes: [] },
      // A client of the gateway may have the same name.
      instance: compositeKey('worker', name),
      ...{ deadlineMs: timeMs, signal },
      ...(trace ? { meta: traceMeta(trace) } : {}),
      ...(wantsProgress ? { onProgress: (params) => this.#progress(key, params) } : {}),
    });
    if (bytes.length <= brokerLimits.replyBytes) return resultBody(bytes, era);
    return errorBody(tooLarge(target, bytes.length, brokerLimits.replyBytes));
  }

  #progress(key: string, params: Buffer): void {
    if (params.length <= brokerLimits.progressBytes) this.from.send({ op: 'progress', key, params });
  }

  /** The tool that is meant, or why the worker may not call it. */
  #target(): Target | HostError {
    const { host, manifestOf, isRolelessAllowed } = this.ports;
    const { server, tool } = this.request;
    const identity = this.from.identity();
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
}
