/**
 * Mail and dead letters as tables. A row of mail is written once and never changed; how often it was handed out, and that it is
 * dead, stand in small tables beside it, so that a large body is not written again.
 * Not here: transactions and what a failed one means (mail-file.ts), the journal of calls (calls-table.ts).
 *
 * Invariants: a `seq` is never given twice, also after its row is gone; one (mailbox, sender, id, kind) is held once; a row that
 * does not add up is moved to the damaged ones and told, and never handed out.
 */
import type Database from 'libsql';
import { HostError } from '../../kernel/errors.js';
import { jointKey } from '../../policy/joint-key.js';
import type { DeadLetter, Mail, MailboxSize, NewMail, Put } from '../store-port.js';
import { bodySum, headSum, type SummedHead } from './mail-checksum.js';
import { MailIndex } from './mail-index.js';
import { fullError, type StoreLimits } from './store-words.js';

export const mailSchema = `
  CREATE TABLE IF NOT EXISTS mail (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, dest TEXT NOT NULL, sender TEXT NOT NULL, role TEXT, id TEXT NOT NULL,
    kind INTEGER NOT NULL, sent_at INTEGER NOT NULL, expires_at INTEGER, body_sum INTEGER NOT NULL,
    head_sum INTEGER NOT NULL, body BLOB NOT NULL);
  CREATE TABLE IF NOT EXISTS deliveries (seq INTEGER PRIMARY KEY, count INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS dead (seq INTEGER PRIMARY KEY, died_at INTEGER NOT NULL, reasons TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS damaged (
    seq INTEGER PRIMARY KEY, found_at INTEGER NOT NULL, dest, sender, role, id, kind, sent_at, expires_at, body_sum,
    head_sum, body);
`;

interface HeadRow extends SummedHead {
  readonly head_sum: number;
  readonly bytes: number;
}

interface BodyRow extends SummedHead {
  readonly head_sum: number;
  readonly body: Buffer;
}

interface DeadRow {
  readonly seq: number;
  readonly died_at: number;
  readonly reasons: string;
}

interface Dead {
  readonly letter: DeadLetter;
  readonly key: string;
}

/** Of a dead letter's reasons: one per handing out, and no more is of use to anybody. */
const reasonsMax = 16;
const reasonCharsMax = 512;

const kinds = ['request', 'reply'] as const;
const keyOf = (dest: string, sender: string, id: string, kind: number): string =>
  jointKey(dest, sender, id, kind === 0 ? 'q' : 'a');

/** Without the body, which may be megabytes. */
const selectHead =
  'SELECT seq, dest, sender, role, id, kind, sent_at, expires_at, body_sum, head_sum, length(body) AS bytes FROM mail';

const statements = {
  head: `${selectHead} WHERE seq = ?`,
  put: 'INSERT INTO mail VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  read: 'SELECT * FROM mail WHERE seq = ?',
  remove: 'DELETE FROM mail WHERE seq = ?',
  count: 'INSERT INTO deliveries VALUES (?, ?) ON CONFLICT DO UPDATE SET count = excluded.count',
  uncount: 'DELETE FROM deliveries WHERE seq = ?',
  bury: 'INSERT OR REPLACE INTO dead VALUES (?, ?, ?)',
  unbury: 'DELETE FROM dead WHERE seq = ?',
  damage:
    'INSERT OR REPLACE INTO damaged SELECT seq, ?, dest, sender, role, id, kind, sent_at, expires_at, body_sum, head_sum, body FROM mail WHERE seq = ?',
  trimDamaged:
    'DELETE FROM damaged WHERE seq IN (SELECT seq FROM damaged ORDER BY found_at DESC, seq DESC LIMIT -1 OFFSET ?)',
} as const;

export class MailTable {
  readonly #database: Database.Database;
  readonly #limits: StoreLimits;
  readonly #onProblem: (error: HostError) => void;
  readonly #index = new MailIndex();
  /** In the order they died. */
  readonly #dead = new Map<number, Dead>();
  #deadBytes = 0;
  #lastSeq = 0;
  /** Counts that are not written yet. */
  readonly #handed = new Set<number>();
  readonly #statements: Record<keyof typeof statements, Database.Statement>;

  constructor(database: Database.Database, limits: StoreLimits, onProblem: (error: HostError) => void) {
    this.#database = database;
    this.#limits = limits;
    this.#onProblem = onProblem;
    this.#statements = Object.fromEntries(
      Object.entries(statements).map(([name, sql]) => [name, database.prepare(sql)]),
    ) as Record<keyof typeof statements, Database.Statement>;
  }

  /** Reads what is held; returns what does not add up, for `setAside`. */
  load(): number[] {
    this.#index.clear();
    this.#dead.clear();
    this.#handed.clear();
    this.#deadBytes = 0;
    const rows = <T>(sql: string): Iterable<T> => this.#database.prepare(sql).iterate([]) as Iterable<T>;
    this.#lastSeq = 0;
    for (const { seq } of rows<{ seq: number }>("SELECT seq FROM sqlite_sequence WHERE name = 'mail'"))
      this.#lastSeq = seq;
    const counts = new Map<number, number>();
    for (const { seq, count } of rows<{ seq: number; count: number }>('SELECT seq, count FROM deliveries'))
      counts.set(seq, count);
    const letters = new Map<number, DeadRow>();
    for (const row of rows<DeadRow>('SELECT seq, died_at, reasons FROM dead')) letters.set(row.seq, row);
    const damaged: number[] = [];
    const dead: [HeadRow, DeadRow][] = [];
    for (const row of rows<HeadRow>(`${selectHead} ORDER BY seq`)) {
      this.#lastSeq = Math.max(this.#lastSeq, row.seq);
      const letter = letters.get(row.seq);
      if (headSum(row) !== row.head_sum) damaged.push(row.seq);
      else if (letter !== undefined) dead.push([row, letter]);
      else {
        const { seq, dest, sender, id, kind, bytes } = row;
        const key = keyOf(dest, sender, id, kind);
        this.#index.add({ seq, mailbox: dest, key, bytes, deliveries: counts.get(seq) ?? 0 });
      }
    }
    dead.sort(([a, x], [b, y]) => x.died_at - y.died_at || a.seq - b.seq);
    for (const [row, letter] of dead) this.#addDead(row, row.bytes, letter.died_at, reasonsOf(letter.reasons));
    return damaged;
  }

  sizes(): MailboxSize[] {
    return this.#index.sizes();
  }

  /** `mayGrow`: whether there is room for what is new. */
  put(mail: NewMail, mayGrow: boolean): Put {
    const { to: dest, from, id, body } = mail;
    const kind = mail.kind === 'request' ? 0 : 1;
    const key = keyOf(dest, from.mailbox, id, kind);
    const held = this.#index.seqOf(key);
    if (held !== undefined) return { seq: held, isNew: false };
    // Sent once more by who has not heard yet: to run it now would make that reply a lie.
    const reply = kind === 0 ? this.#index.seqOf(keyOf(from.mailbox, dest, id, 1)) : undefined;
    if (reply !== undefined) return { seq: reply, isNew: false, isAnswered: true };
    if (!mayGrow) throw fullError('disk_full', 'the disk of the broker is full');
    this.#requireRoom(body.length);
    const head: SummedHead = {
      seq: this.#lastSeq + 1,
      dest,
      sender: from.mailbox,
      role: from.role ?? null,
      id,
      kind,
      sent_at: mail.sentAtMs,
      expires_at: mail.expiresAtMs ?? null,
      body_sum: bodySum(body),
    };
    this.#insert(head, key, body);
    return { seq: head.seq, isNew: true };
  }

  /** Without `nowMs` nothing may be written: what is damaged is left out, and where it is. */
  read(mailbox: string, afterSeq: number, count: number, bytes: number, nowMs: number | undefined): Mail[] {
    const mails: Mail[] = [];
    let left = bytes;
    for (const { seq, bytes: size, deliveries } of this.#index.after(mailbox, afterSeq)) {
      if (mails.length > 0 && (mails.length >= count || size > left)) break;
      const row = this.#rowOf(seq, nowMs);
      if (row === undefined) continue;
      left -= size;
      mails.push(mailOf(row, deliveries));
    }
    return mails;
  }

  /** As `read`, of one request. */
  request(dest: string, sender: string, id: string, nowMs: number | undefined): Mail | undefined {
    const mail = this.#index.get(this.#index.seqOf(keyOf(dest, sender, id, 0)) ?? 0);
    const row = mail && this.#rowOf(mail.seq, nowMs);
    return mail && row && mailOf(row, mail.deliveries);
  }

  handedOut(seq: number): void {
    const mail = this.#index.get(seq);
    if (mail === undefined) return;
    mail.deliveries += 1;
    this.#handed.add(seq);
  }

  remove(seq: number): void {
    const mail = this.#index.remove(seq);
    if (mail !== undefined) this.#delete(seq, mail.deliveries > 0);
  }

  bury(seq: number, reasons: readonly string[], nowMs: number): void {
    const mail = this.#index.get(seq);
    if (mail === undefined) return;
    const row = this.#statements.head.get([seq]) as HeadRow | undefined;
    this.#index.remove(seq);
    if (row === undefined || headSum(row) !== row.head_sum) return this.setAside(seq, nowMs);
    const kept = reasons.slice(-reasonsMax).map((reason) => reason.slice(0, reasonCharsMax));
    this.#statements.bury.run([seq, nowMs, JSON.stringify(kept)]);
    this.#addDead(row, mail.bytes, nowMs, kept);
    this.#dropOldestDead();
  }

  deadLetters(): DeadLetter[] {
    return [...this.#dead.values()].map(({ letter }) => letter);
  }

  revive(seq: number, mayGrow: boolean, nowMs: number): Mail | undefined {
    const dead = this.#dead.get(seq);
    if (dead === undefined) return undefined;
    if (this.#index.seqOf(dead.key) !== undefined)
      throw new HostError(
        'invalid_request',
        `dead letter ${seq} is held again already, as its sender sent it once more`,
        {
          reason: 'already_held',
          hint: 'drop the dead letter, or wait until the other one was taken',
        },
      );
    if (!mayGrow) throw fullError('disk_full', 'the disk of the broker is full');
    const row = this.#rowOf(seq, nowMs);
    if (row === undefined) return undefined;
    this.dropDead(seq);
    // As if it were sent now, with as much time as it had.
    const expires_at = row.expires_at === null ? null : nowMs + row.expires_at - row.sent_at;
    const head = { ...row, seq: this.#lastSeq + 1, sent_at: nowMs, expires_at };
    this.#insert(head, dead.key, row.body);
    return mailOf(head, 0);
  }

  dropDead(seq: number): boolean {
    const dead = this.#dead.get(seq);
    if (dead === undefined) return false;
    this.#dead.delete(seq);
    this.#deadBytes -= dead.letter.bytes;
    this.#statements.unbury.run([seq]);
    this.#delete(seq, true);
    return true;
  }

  /** What was only counted so far is written: before a commit, so that what is gone by then costs nothing. */
  settle(): void {
    for (const seq of this.#handed) {
      const mail = this.#index.get(seq);
      if (mail !== undefined) this.#statements.count.run([seq, mail.deliveries]);
    }
    this.#handed.clear();
  }

  #requireRoom(bytes: number): void {
    const { mailCount, mailBytes } = this.#limits;
    if (this.#index.count + this.#dead.size < mailCount && this.#index.bytes + this.#deadBytes + bytes <= mailBytes)
      return;
    throw fullError(
      'mail_limit',
      `the broker holds as much mail as it may: ${mailCount} messages or ${mailBytes} bytes`,
    );
  }

  #insert(head: SummedHead, key: string, body: Buffer): void {
    const { seq, dest, sender, role, id, kind, sent_at, expires_at, body_sum } = head;
    this.#statements.put.run([seq, dest, sender, role, id, kind, sent_at, expires_at, body_sum, headSum(head), body]);
    this.#lastSeq = seq;
    this.#index.add({ seq, mailbox: dest, key, bytes: body.length, deliveries: 0 });
  }

  #delete(seq: number, isCounted: boolean): void {
    this.#statements.remove.run([seq]);
    if (isCounted) this.#statements.uncount.run([seq]);
  }

  #rowOf(seq: number, nowMs: number | undefined): BodyRow | undefined {
    const row = this.#statements.read.get([seq]) as BodyRow | undefined;
    if (row !== undefined && headSum(row) === row.head_sum && bodySum(row.body) === row.body_sum) return row;
    if (nowMs !== undefined) this.setAside(seq, nowMs);
    return undefined;
  }

  setAside(seq: number, nowMs: number): void {
    this.#index.remove(seq);
    const dead = this.#dead.get(seq);
    if (dead !== undefined) this.#deadBytes -= dead.letter.bytes;
    this.#dead.delete(seq);
    this.#statements.damage.run([nowMs, seq]);
    this.#statements.unbury.run([seq]);
    this.#delete(seq, true);
    this.#statements.trimDamaged.run([this.#limits.damagedCount]);
    this.#onProblem(
      new HostError('protocol_error', `message ${seq} of the broker's store is damaged and was set aside`, {
        reason: 'damaged_mail',
        hint: 'see to the disk of the broker; the table damaged of broker.db holds what is left of it',
      }),
    );
  }

  #addDead(row: HeadRow, bytes: number, diedAtMs: number, reasons: readonly string[]): void {
    const { seq, dest, sender, role, id, kind, sent_at } = row;
    this.#deadBytes += bytes;
    this.#dead.set(seq, {
      key: keyOf(dest, sender, id, kind),
      letter: {
        seq,
        to: dest,
        from: { mailbox: sender, role: role ?? undefined },
        id,
        kind: kinds[kind as 0 | 1],
        sentAtMs: sent_at,
        diedAtMs,
        bytes,
        reasons,
      },
    });
  }

  #dropOldestDead(): void {
    const { deadCount, deadBytes } = this.#limits;
    for (const seq of this.#dead.keys()) {
      if (this.#dead.size <= deadCount && this.#deadBytes <= deadBytes) return;
      this.dropDead(seq);
      this.#onProblem(
        new HostError('insufficient_storage', `dead letter ${seq}, the oldest, was dropped: there are too many`, {
          reason: 'dead_letters_full',
          limit: deadCount,
          hint: 'see why messages die, and drop or revive them before there are so many',
        }),
      );
    }
  }
}

const mailOf = (row: BodyRow, deliveries: number): Mail => ({
  seq: row.seq,
  to: row.dest,
  from: { mailbox: row.sender, role: row.role ?? undefined },
  id: row.id,
  kind: kinds[row.kind as 0 | 1],
  sentAtMs: row.sent_at,
  expiresAtMs: row.expires_at ?? undefined,
  body: row.body,
  deliveries,
});

function reasonsOf(text: string): readonly string[] {
  try {
    return JSON.parse(text) as string[];
  } catch {
    return [];
  }
}
