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
import { compositeKey } from '../../policy/composite-key.js';
import type { DeadLetter, Mail, MailboxSize, NewMail, Put } from '../store-port.js';
import { DeadIndex } from './dead-index.js';
import { bodySum, headSum, headSumWith, type SummedHead } from './mail-checksum.js';
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

/** The same in the order of `selectHead`. */
type HeadList = readonly [
  ...[seq: number, dest: string, sender: string, role: string | null, id: string, kind: number, sentAt: number],
  ...[expiresAt: number | null, bodySum: number, headSum: number, bytes: number],
];

interface BodyRow extends SummedHead {
  readonly head_sum: number;
  readonly body: Buffer;
}

interface DeadRow {
  readonly seq: number;
  readonly died_at: number;
  readonly reasons: string;
}

/** Of a dead letter's reasons: one per handing out, and no more is of use to anybody. */
const reasonsMax = 16;
const reasonCharsMax = 512;

const kinds = ['request', 'reply'] as const;
const keyWith = (names: string, kind: number): string => names + (kind === 0 ? requestMark : replyMark);
const [requestMark, replyMark] = [compositeKey('q'), compositeKey('a')];
const keyOf = (dest: string, sender: string, id: string, kind: number): string =>
  keyWith(compositeKey(dest, sender, id), kind);

const headColumns = [
  ...['seq', 'dest', 'sender', 'role', 'id', 'kind', 'sent_at', 'expires_at', 'body_sum', 'head_sum', 'bytes'],
];
/** Without the body, which may be megabytes. */
const selectHead = `SELECT ${headColumns.slice(0, -1).join()}, length(body) AS bytes FROM mail`;
/** Read at a time. */
const headsPage = 1_000;

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
  readonly #dead = new DeadIndex();
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
    for (const head of this.#heads()) {
      const [seq, dest, sender, role, id, kind, sent_at, expires_at, body_sum, head_sum, bytes] = head;
      if (seq > this.#lastSeq) this.#lastSeq = seq;
      // Of both its sum and its key.
      const names = compositeKey(dest, sender, id);
      const letter = letters.get(seq);
      if (headSumWith({ seq, kind, sent_at, expires_at, body_sum, role }, names) !== head_sum) damaged.push(seq);
      else if (letter !== undefined) {
        dead.push([{ seq, dest, sender, role, id, kind, sent_at, expires_at, body_sum, head_sum, bytes }, letter]);
      } else {
        const key = keyWith(names, kind);
        this.#index.add({ seq, mailbox: dest, key, bytes, deliveries: counts.get(seq) ?? 0 });
      }
    }
    dead.sort(([a, x], [b, y]) => x.died_at - y.died_at || a.seq - b.seq);
    for (const [row, letter] of dead) this.#addDead(row, row.bytes, letter.died_at, reasonsOf(letter.reasons));
    return damaged;
  }

  /**
   * All of them, in order. A start waits for this: a page as one text of JSON comes over in a third of the time that its rows
   * take one by one. What a text cannot hold, as a damaged row may have it, is read by rows.
   */
  *#heads(): Generator<HeadList> {
    const page = `${selectHead} WHERE seq > ? ORDER BY seq LIMIT ${headsPage}`;
    const asRows = this.#database.prepare(page).raw();
    const asText = this.#database
      .prepare(`SELECT json_group_array(json_array(${headColumns.join()})) FROM (${page})`)
      .raw();
    const pageAfter = (seq: number): HeadList[] => {
      try {
        const [[text]] = asText.all([seq]) as [[string]];
        return JSON.parse(text) as HeadList[];
      } catch {
        return asRows.all([seq]) as HeadList[];
      }
    };
    for (
      let heads = pageAfter(Number.MIN_SAFE_INTEGER);
      heads.length > 0;
      heads = pageAfter((heads.at(-1) as HeadList)[0])
    )
      yield* heads;
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
    this.#dropDeadOfMost();
  }

  deadLetters(): DeadLetter[] {
    return this.#dead.all();
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
    if (this.#dead.get(seq) === undefined) return false;
    this.#dead.remove(seq);
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
    if (this.#index.count + this.#dead.count < mailCount && this.#index.bytes + this.#dead.bytes + bytes <= mailBytes)
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
    this.#dead.remove(seq);
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
    this.#dead.add({
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

  #dropDeadOfMost(): void {
    const { deadCount, deadBytes } = this.#limits;
    while (this.#dead.count > deadCount || this.#dead.bytes > deadBytes) {
      const oldest = this.#dead.oldestOfMost(this.#dead.count > deadCount ? 'count' : 'bytes');
      if (oldest === undefined) return;
      this.dropDead(oldest.seq);
      this.#onProblem(
        new HostError(
          'insufficient_storage',
          `dead letter ${oldest.seq}, the oldest of whoever has most, was dropped: there are too many`,
          {
            reason: 'dead_letters_full',
            limit: deadCount,
            hint: 'see why messages die, and drop or revive them before there are so many',
          },
        ),
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
