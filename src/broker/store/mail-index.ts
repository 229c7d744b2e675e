/**
 * Which mail is held, by mailbox and by who sent what: in memory, so that a put is one row on disk and nothing else. It is made
 * of the file's rows at start, and again when a transaction was taken back.
 * Not here: bodies, the file (mail-table.ts).
 *
 * Invariants: within a mailbox the order is that of `seq`, which only grows; a mailbox in which nothing is left is forgotten.
 * Bound: that of the mail held (`StoreLimits.mailCount`).
 */
export interface HeldMail {
  readonly seq: number;
  readonly mailbox: string;
  readonly key: string;
  readonly bytes: number;
  deliveries: number;
}

interface Mailbox {
  /** Ascending; those that were removed stay until half of them are. */
  seqs: number[];
  count: number;
  bytes: number;
}

/** Below this nothing is gained. */
const compactFrom = 64;

export class MailIndex {
  readonly #held = new Map<number, HeldMail>();
  readonly #byKey = new Map<string, number>();
  readonly #mailboxes = new Map<string, Mailbox>();
  bytes = 0;

  get count(): number {
    return this.#held.size;
  }

  get(seq: number): HeldMail | undefined {
    return this.#held.get(seq);
  }

  seqOf(key: string): number | undefined {
    return this.#byKey.get(key);
  }

  /** `seq` is above every other. */
  add(mail: HeldMail): void {
    this.#held.set(mail.seq, mail);
    this.#byKey.set(mail.key, mail.seq);
    this.bytes += mail.bytes;
    const mailbox = this.#mailboxes.get(mail.mailbox);
    if (mailbox === undefined) {
      this.#mailboxes.set(mail.mailbox, { seqs: [mail.seq], count: 1, bytes: mail.bytes });
      return;
    }
    mailbox.seqs.push(mail.seq);
    mailbox.count += 1;
    mailbox.bytes += mail.bytes;
  }

  remove(seq: number): HeldMail | undefined {
    const mail = this.#held.get(seq);
    if (mail === undefined) return undefined;
    this.#held.delete(seq);
    this.#byKey.delete(mail.key);
    this.bytes -= mail.bytes;
    const mailbox = this.#mailboxes.get(mail.mailbox) as Mailbox;
    mailbox.count -= 1;
    mailbox.bytes -= mail.bytes;
    if (mailbox.count === 0) this.#mailboxes.delete(mail.mailbox);
    else if (mailbox.seqs.length >= compactFrom && mailbox.count * 2 < mailbox.seqs.length)
      mailbox.seqs = mailbox.seqs.filter((each) => this.#held.has(each));
    return mail;
  }

  /** Those of a mailbox above `afterSeq`, in order. */
  *after(name: string, afterSeq: number): Generator<HeldMail> {
    const seqs = this.#mailboxes.get(name)?.seqs ?? [];
    for (let at = firstAbove(seqs, afterSeq); at < seqs.length; at++) {
      const mail = this.#held.get(seqs[at] as number);
      if (mail !== undefined) yield mail;
    }
  }

  sizes(): { mailbox: string; count: number; bytes: number }[] {
    return [...this.#mailboxes].map(([mailbox, { count, bytes }]) => ({ mailbox, count, bytes }));
  }

  clear(): void {
    this.#held.clear();
    this.#byKey.clear();
    this.#mailboxes.clear();
    this.bytes = 0;
  }
}

function firstAbove(seqs: readonly number[], limit: number): number {
  let [low, high] = [0, seqs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((seqs[middle] as number) > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}
