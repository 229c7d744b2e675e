/**
 * Approvals of changed tools: lists the tools that wait for approval, approves one version, and takes back the newest
 * approval.
 * Not here: the pins (policy/pins.ts), the command (cli/approve.ts).
 * Invariant: an approval names the hash that the operator saw. A version that was listed later is not approved.
 */
import { approvalEvent } from '../catalog/schema-events.js';
import type { ApprovalLog } from '../catalog/store/approvals-table.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { PinStatus } from '../policy/pin-records.js';
import { type PinReview, reviewOf } from '../policy/pin-review.js';
import { pinRefusal } from '../policy/pin-stage.js';
import type { Pins } from '../policy/pins.js';
import type { HostEvents } from './host-events.js';
import type { ListOperations } from './list-operations.js';
import type { Servers } from './servers.js';

interface ApprovalParts {
  readonly clock: Clock;
  readonly pins: Pins;
  readonly log: ApprovalLog;
  readonly servers: Pick<Servers, 'names' | 'get'>;
  readonly events: Pick<HostEvents, 'emit'>;
  readonly listOperations: Pick<ListOperations, 'reapplyPins'>;
}

export interface ListedPin {
  readonly status: PinStatus;
  /** Hash of the listed version. */
  readonly hash: string | undefined;
}

export class Approvals {
  readonly #parts: ApprovalParts;

  constructor(parts: ApprovalParts) {
    this.#parts = parts;
  }

  /** Tools whose listed version is not approved; of one server, or of all servers. */
  waiting(server?: string): PinReview[] {
    const { pins, servers } = this.#parts;
    return (server === undefined ? servers.names() : [server]).flatMap((name) => {
      const { pins: policy } = servers.get(name).definition;
      return pins
        .waitingOf(name)
        .map(({ record, status }) => reviewOf(name, record, status, pinRefusal(status, policy) !== undefined));
    });
  }

  /** Undefined: the tool is unknown. */
  listed(server: string, tool: string): ListedPin | undefined {
    const { pins } = this.#parts;
    const record = pins.recordOf(server, tool);
    return record && { status: pins.statusOf(server, tool), hash: (record.pending ?? record.approved)?.hash };
  }

  approve(server: string, tool: string, hash: string): void {
    const { pins, clock, log } = this.#parts;
    const before = pins.recordOf(server, tool);
    pins.approve(server, tool, hash.replace(/^sha256:/, ''), clock.date());
    const after = pins.recordOf(server, tool);
    if (before && after?.approved && after.approved.hash !== before.approved?.hash)
      log.push({ server, tool, hash: after.approved.hash, before });
    this.#changed(server, tool, before);
  }

  /** Takes back the newest approval that is still in effect. Repeated calls take back earlier ones. */
  undo(): { readonly server: string; readonly tool: string } {
    const { pins, log, servers } = this.#parts;
    // A removed server may be added again, so its approvals stay in the log.
    const names = new Set(servers.names());
    const isInEffect = ({ server, tool, hash }: ReturnType<ApprovalLog['newestFirst']>[number]) =>
      names.has(server) && pins.recordOf(server, tool)?.approved?.hash === hash;
    const last = log.newestFirst().find(isInEffect);
    if (!last) throw nothingToUndo();
    const { id, server, tool, hash, before } = last;
    const now = pins.recordOf(server, tool);
    pins.undoApproval(server, tool, hash, before);
    log.drop(id);
    this.#changed(server, tool, now);
    return { server, tool };
  }

  #changed(server: string, tool: string, before: ReturnType<Pins['recordOf']>): void {
    const { pins, events, listOperations } = this.#parts;
    const event = approvalEvent(tool, before, pins.recordOf(server, tool));
    if (event) events.emit(server, event);
    listOperations.reapplyPins(server);
  }
}

const nothingToUndo = (): HostError =>
  new HostError('invalid_request', 'there is no approval to take back', {
    reason: 'no_approval',
    execution: 'not_executed',
    hint: 'the newest 20 approvals of configured servers can be taken back, one by one',
  });
