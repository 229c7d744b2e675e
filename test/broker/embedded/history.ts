/**
 * What happened to every message of a run, in order, and what of it must not have happened. A pure function, so that it can be
 * shown to see each fault (history.test.ts) before it is trusted with a run that has none.
 */
export type Happened =
  /** A worker sends its nth message, or sends it again since it has no receipt: then it may be a new one to the broker. */
  | { readonly kind: 'sent'; readonly who: string; readonly n: number }
  | { readonly kind: 'receipt'; readonly who: string; readonly n: number }
  /** It was refused for good. */
  | { readonly kind: 'refused'; readonly who: string; readonly n: number }
  /** `link`: which connection of the host. `seq`: the broker's number of it. */
  | { readonly kind: 'handed'; readonly who: string; readonly n: number; readonly link: number; readonly seq: number }
  | { readonly kind: 'acked'; readonly who: string; readonly n: number; readonly link: number }
  | { readonly kind: 'released'; readonly who: string; readonly n: number; readonly link: number }
  | { readonly kind: 'link_over'; readonly link: number }
  | { readonly kind: 'answered'; readonly who: string; readonly n: number }
  | { readonly kind: 'taken'; readonly who: string; readonly n: number };

export interface Verdict {
  readonly lostReceipts: number;
  readonly reordered: number;
  readonly overlapping: number;
  readonly afterAck: number;
  readonly phantoms: number;
  readonly lostReplies: number;
}

/** Of a run that was let come to its end: everything that waits has been taken. */
export function judge(history: readonly Happened[]): Verdict {
  const verdict = { lostReceipts: 0, reordered: 0, overlapping: 0, afterAck: 0, phantoms: 0, lostReplies: 0 };
  /** How often. */
  const sent = new Map<string, number>();
  const receipts = new Set<string>();
  const handed = new Set<string>();
  const answered = new Set<string>();
  const taken = new Set<string>();
  /** The highest of each sender that was handed out for the first time. */
  const furthest = new Map<string, number>();
  /** By message, the connection that holds it. */
  const holders = new Map<string, number>();
  /** By message and connection, how often: on that one it must not come again unless it was sent again. */
  const acked = new Map<string, number>();
  for (const each of history) {
    if (each.kind === 'link_over') {
      for (const [key, link] of holders) if (link === each.link) holders.delete(key);
      continue;
    }
    const key = `${each.who} ${each.n}`;
    switch (each.kind) {
      case 'sent':
        sent.set(key, (sent.get(key) ?? 0) + 1);
        break;
      case 'receipt':
        receipts.add(key);
        break;
      case 'handed':
        if (!sent.has(key)) verdict.phantoms++;
        if (holders.has(key)) verdict.overlapping++;
        if ((acked.get(`${key} ${each.link}`) ?? 0) >= (sent.get(key) ?? 1)) verdict.afterAck++;
        holders.set(key, each.link);
        if (!handed.has(key)) {
          if (each.n < (furthest.get(each.who) ?? -1)) verdict.reordered++;
          furthest.set(each.who, Math.max(each.n, furthest.get(each.who) ?? -1));
        }
        handed.add(key);
        break;
      case 'acked':
        acked.set(`${key} ${each.link}`, (acked.get(`${key} ${each.link}`) ?? 0) + 1);
        holders.delete(key);
        break;
      case 'released':
        holders.delete(key);
        break;
      case 'answered':
        answered.add(key);
        break;
      case 'taken':
        if (!handed.has(key)) verdict.phantoms++;
        taken.add(key);
        break;
      default:
        break;
    }
  }
  for (const key of receipts) if (!handed.has(key)) verdict.lostReceipts++;
  for (const key of answered) if (!taken.has(key)) verdict.lostReplies++;
  return verdict;
}

export const spotless: Verdict = {
  ...{ lostReceipts: 0, reordered: 0, overlapping: 0, afterAck: 0, phantoms: 0, lostReplies: 0 },
};
