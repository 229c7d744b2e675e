/**
 * The tools of a list with their pin status and approved text, for applications.
 * Not here: tools as a gateway shows them (listings.ts), the status of a pin (policy/pins.ts).
 *
 * Invariants: an unapproved text is returned only if no approved text exists, and is marked. A tool without a name is left out:
 * it cannot be called.
 */
import type { PinStatus } from '../policy/pin-records.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem } from '../session/lists.js';

export interface PinnedText {
  /** The tool as JSON of the server: the approved version or, marked by `isUnapproved`, the listed one. */
  readonly raw: Buffer;
  /** Status of the version that the server lists now. Always `approved` with `pins: "off"`. */
  readonly pin: PinStatus;
  /** `raw` was never approved: show it to an operator, not to a model. */
  readonly isUnapproved: boolean;
}

export interface HostTool extends PinnedText {
  readonly server: string;
  readonly name: string;
}

/** One item of a list, as JSON of the server. `server` is the server that sent the list, never a name from the JSON. */
export interface HostItem {
  readonly server: string;
  /** Name, URI or URI template. */
  readonly key: string;
  /** Approved text of a tool, as in `HostTool`. */
  readonly raw: Buffer;
  /** For tools only, as in `HostTool`. */
  readonly pin?: PinStatus;
  readonly isUnapproved?: boolean;
}

export interface PinnedTool extends ListedItem {
  readonly pin: PinStatus;
  readonly isUnapproved: boolean;
}

/**
 * `compared`: the list that the pins were last compared with. Pin statuses are valid for its texts only. An item with another
 * text, such as one of a late response, is checked by its hash.
 */
export function pinnedTools(
  pins: Pick<Pins, 'statusesOf' | 'recordOf' | 'isApprovedText'>,
  server: string,
  items: readonly ListedItem[],
  compared: readonly ListedItem[],
): PinnedTool[] {
  const statusOf = pins.statusesOf(server);
  const comparedTexts = items === compared ? undefined : new Map(compared.map(({ key, raw }) => [key, raw]));
  const isCompared = ({ key, raw }: ListedItem) => comparedTexts?.get(key)?.equals(raw) ?? comparedTexts === undefined;
  /** A name may be listed twice; the approved text is shown once. */
  const approvedOnce = new Set<string>();
  return items.flatMap((item): PinnedTool[] => {
    const { key, raw } = item;
    if (key === '') return [];
    const status = statusOf(key);
    const wasApproved = status === 'approved' || status === 'removed';
    if (wasApproved && (isCompared(item) || pins.isApprovedText(server, item)))
      return [{ key, raw, pin: status, isUnapproved: false }];
    const pin = wasApproved ? 'changed' : status;
    const approved = pins.recordOf(server, key)?.approved?.raw;
    if (approved === undefined) return [{ key, raw, pin, isUnapproved: true }];
    if (approvedOnce.has(key)) return [];
    approvedOnce.add(key);
    return [{ key, raw: Buffer.from(approved), pin, isUnapproved: false }];
  });
}
