/**
 * The tools of a list as an embedder is shown them: with the status of their pin, and with the approved text where there is one.
 * Not here: what a gateway shows, which follows the policy of the server (listings.ts); how a pin comes by its status (policy/pins.ts).
 *
 * Invariant: a text that was not approved is shown only where no approved text exists, and then it is marked.
 */
import type { PinStatus } from '../policy/pin-store.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem } from '../session/lists.js';

/** What the pin of a tool says about its text. */
export interface PinnedText {
  /**
   * The whole tool as its server wrote it, with every member. Where the server lists another version than the approved one, this
   * is the approved text. Only a tool without an approved text is shown as it is listed, marked by `isUnapproved`.
   */
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

/** One item of a list, as the server wrote it. Which server that is stands here, never in what it wrote. */
export interface HostItem {
  readonly server: string;
  /** Its name, or for resources its URI or template. */
  readonly key: string;
  /** For a tool the approved text, as in `HostTool`. */
  readonly raw: Buffer;
  /** Present for tools only, as in `HostTool`. */
  readonly pin?: PinStatus;
  readonly isUnapproved?: boolean;
}

export interface JudgedTool extends ListedItem {
  readonly pin: PinStatus;
  /** `raw` was never approved. */
  readonly isUnapproved: boolean;
}

/**
 * `judged`: the list that the pins were last compared with. A status says something about its texts only: an item of another
 * list, such as an answer that came late, is compared by its own hash.
 */
export function judgedTools(
  pins: Pick<Pins, 'statusesOf' | 'recordOf' | 'isApprovedText'>,
  server: string,
  items: readonly ListedItem[],
  judged: readonly ListedItem[],
): JudgedTool[] {
  const statusOf = pins.statusesOf(server);
  const judgedTexts = items === judged ? undefined : new Map(judged.map(({ key, raw }) => [key, raw]));
  const isJudged = ({ key, raw }: ListedItem) => judgedTexts?.get(key)?.equals(raw) ?? judgedTexts === undefined;
  /** A name may be listed twice; its approved text is shown once. */
  const approvedOnce = new Set<string>();
  return items.flatMap((item): JudgedTool[] => {
    const { key, raw } = item;
    const status = statusOf(key);
    const wasApproved = status === 'approved' || status === 'removed';
    if (wasApproved && (isJudged(item) || pins.isApprovedText(server, item)))
      return [{ key, raw, pin: status, isUnapproved: false }];
    const pin = wasApproved ? 'changed' : status;
    const approved = pins.recordOf(server, key)?.approved?.raw;
    if (approved === undefined) return [{ key, raw, pin, isUnapproved: true }];
    if (approvedOnce.has(key)) return [];
    approvedOnce.add(key);
    return [{ key, raw: Buffer.from(approved), pin, isUnapproved: false }];
  });
}
