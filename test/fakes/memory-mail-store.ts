/**
 * A disk that forgets nothing while its process lives: the rules of the store without SQLite. `put` resolves one turn of the
 * event loop later, as a real one would; what was handed to it survives as many brokers as are opened on it.
 */
import type {
  DeadLetter,
  Mail,
  MailboxSize,
  MailStore,
  NewMail,
  Put,
  StoreState,
} from '../../src/broker/store-port.js';

export class MemoryMailStore implements MailStore {
  state: StoreState = 'open';
  /** Puts that are refused from now on. */
  failure: Error | undefined;
  /** Of those, `read` finds nothing. */
  readonly damaged = new Set<number>();
  reads = 0;
  readonly #mail = new Map<number, Mail>();
  readonly #held = new Map<string, number>();
  readonly #dead = new Map<number, DeadLetter & { readonly mail: Mail }>();
  #seq = 0;

  async sizes(): Promise<readonly MailboxSize[]> {
    const sizes = new Map<string, { mailbox: string; count: number; bytes: number }>();
    for (const { to, body } of this.#mail.values()) {
      const size = sizes.get(to) ?? { mailbox: to, count: 0, bytes: 0 };
      size.count++;
      size.bytes += body.length;
      sizes.set(to, size);
    }
    return [...sizes.values()];
  }

  async put(mail: NewMail, answers?: number): Promise<Put> {
    await new Promise((resolve) => setImmediate(resolve));
    if (this.failure) throw this.failure;
    if (answers !== undefined) this.remove(answers);
    const held = this.#held.get(keyOf(mail));
    if (held !== undefined) return { seq: held, isNew: false };
    const { to, from, id, kind } = mail;
    const reply = { to: from.mailbox, from: { mailbox: to, role: undefined }, id, kind: 'reply' } as const;
    const answered = kind === 'request' ? this.#held.get(keyOf(reply)) : undefined;
    if (answered !== undefined) return { seq: answered, isNew: false, isAnswered: true };
    const seq = ++this.#seq;
    this.#mail.set(seq, { ...mail, seq, deliveries: 0 });
    this.#held.set(keyOf(mail), seq);
    return { seq, isNew: true };
  }

  async read(mailbox: string, afterSeq: number, limits: { count: number; bytes: number }): Promise<readonly Mail[]> {
    this.reads++;
    await new Promise((resolve) => setImmediate(resolve));
    const page: Mail[] = [];
    let bytes = 0;
    for (const mail of this.#mail.values()) {
      if (mail.to !== mailbox || mail.seq <= afterSeq || this.damaged.has(mail.seq)) continue;
      bytes += mail.body.length;
      if (page.length > 0 && (page.length >= limits.count || bytes > limits.bytes)) break;
      page.push(mail);
    }
    return page;
  }

  async find(to: string, mailbox: string, id: string): Promise<Mail | undefined> {
    await new Promise((resolve) => setImmediate(resolve));
    const seq = this.#held.get(keyOf({ to, from: { mailbox, role: undefined }, id, kind: 'request' }));
    return seq === undefined ? undefined : this.#mail.get(seq);
  }

  handedOut(seq: number): void {
    const mail = this.#mail.get(seq);
    if (mail) this.#mail.set(seq, { ...mail, deliveries: mail.deliveries + 1 });
  }

  remove(seq: number): void {
    const mail = this.#mail.get(seq);
    if (mail) this.#held.delete(keyOf(mail));
    this.#mail.delete(seq);
  }

  bury(seq: number, reasons: readonly string[]): void {
    const mail = this.#mail.get(seq);
    if (!mail) return;
    this.remove(seq);
    const { to, from, id, kind, sentAtMs, body } = mail;
    this.#dead.set(seq, { ...{ seq, to, from, id, kind, sentAtMs, reasons, mail }, diedAtMs: 0, bytes: body.length });
  }

  async deadLetters(): Promise<readonly DeadLetter[]> {
    return [...this.#dead.values()].map(({ mail: _, ...letter }) => letter);
  }

  async revive(seq: number): Promise<Mail | undefined> {
    const letter = this.#dead.get(seq);
    if (!letter) return undefined;
    this.#dead.delete(seq);
    const mail = { ...letter.mail, seq: ++this.#seq, deliveries: 0 };
    this.#mail.set(mail.seq, mail);
    this.#held.set(keyOf(mail), mail.seq);
    return mail;
  }

  async dropDead(seq: number): Promise<boolean> {
    return this.#dead.delete(seq);
  }

  async flush(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
  }

  async close(): Promise<void> {}
}

const keyOf = ({ to, from, id, kind }: Pick<NewMail, 'to' | 'from' | 'id' | 'kind'>): string =>
  JSON.stringify([to, from.mailbox, id, kind]);
