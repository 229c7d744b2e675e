/**
 * The id of the store, in a row of the bucket of calls. The row also has the time at which the stream of callers' keys was created. If
 * that time has changed, the stream was deleted and created again, and the keys of earlier calls are lost.
 *
 * Invariant: a store that lost acknowledged writes (wiped, an older copy, a restored backup) gets another id before anything else is read
 * or written. So all operations wait for a check of the id after each reconnect, and when a sequence goes back.
 */
import { hash, randomBytes } from 'node:crypto';
import type { StreamInfo } from '@nats-io/jetstream';
import { type Clock, sleep } from '../../kernel/clock.js';
import { type HostError, notExecuted } from '../../kernel/errors.js';
import { type Bucket, callsBucket, keysBucket } from './names.js';
import { codeOf, type NatsConnection, noStream, watchConnection } from './nats-client.js';

export interface StoreIdOptions {
  readonly connection: NatsConnection;
  readonly clock: Clock;
  readonly row: {
    read(): Promise<{ readonly value: Buffer; readonly seq: number } | undefined>;
    /** Resolves with undefined if another host was faster. */
    write(value: string, previousSeq: number): Promise<number | undefined>;
  };
  /** Makes the stream of this bucket if it is missing. */
  readonly info: (bucket: Bucket) => Promise<StreamInfo>;
  readonly onProblem: (error: unknown) => void;
  /** The store has a new id. Tells the other hosts to check the id too. */
  readonly onNewStore: () => void;
  readonly onLoss: () => void;
}

const retryMs = 100;
/** Number of failed checks over one connection after which the failure is reported. */
const failuresBeforeReport = 20;
/** The row must be younger than the age limit of its bucket. */
const refreshMs = 3 * 60_000;
const buckets = [callsBucket, keysBucket] as const;

export class StoreId {
  #id = '';
  /** Known to hosts only, and new with each id: a worker cannot invent a token, and a token of another store id is not valid. */
  #secret = '';
  /** The text of the row. */
  #value = '';
  /** Highest sequences that this host, another host or a worker has seen. */
  readonly #seen: Record<Bucket, number> = { [callsBucket]: 0, [keysBucket]: 0 };
  /** Counts reasons to check the id. A check that began before the newest reason is repeated. */
  #reasons = 0;
  #losses = 0;
  #checking: Promise<void> | undefined;
  #online: Promise<void> = Promise.resolve();
  /** Ends the wait for answers of a lost connection. */
  #lost = () => {};

  private constructor(private readonly options: StoreIdOptions) {}

  static async open(options: StoreIdOptions): Promise<StoreId> {
    const made = new StoreId(options);
    void made.#watchConnection();
    await made.#check();
    made.#refreshLater();
    return made;
  }

  get id(): string {
    return this.#id;
  }

  /** Number of lost connections. If it changes during a write, the acknowledgement may be that of another store. */
  get losses(): number {
    return this.#losses;
  }

  /** Undefined: operations are served now. Otherwise it resolves when the id was checked. */
  get checking(): Promise<void> | undefined {
    return this.#checking;
  }

  /** The highest sequence that this host knows, for workers to keep. */
  get seenToken(): string {
    return this.#tokenOf(this.#seen[callsBucket]);
  }

  /** A worker has seen this sequence. Operations wait until the store is known to have it. */
  sawToken(token: string): void {
    const seq = Number.parseInt(token, 10);
    if (seq > this.#seen[callsBucket] && token === this.#tokenOf(seq)) this.check(seq);
  }

  /** A write of this host has this sequence. Returns false if a later sequence was seen before. */
  sawWrite(bucket: Bucket, seq: number): boolean {
    if (seq <= this.#seen[bucket]) return false;
    this.#seen[bucket] = seq;
    return true;
  }

  /** Checks the id before any other operation. `seq`: a sequence that the store must have. */
  check(seq = 0): void {
    this.#seen[callsBucket] = Math.max(this.#seen[callsBucket], seq);
    this.#reasons++;
    if (this.options.connection.isClosed()) return;
    this.#checking ??= this.#checkUntilDone().finally(() => {
      this.#checking = undefined;
    });
  }

  require(id: string): void {
    if (this.#id === id) return;
    const facts = { reason: 'store_changed' };
    throw notExecuted('transport', 'the NATS server has another store than before', 'send the call again', facts);
  }

  async #checkUntilDone(): Promise<void> {
    const { clock, onProblem, connection } = this.options;
    for (let [failures, losses] = [0, this.#losses]; !connection.isClosed(); failures++) {
      await this.#online;
      // A lost connection is reported by itself.
      if (losses !== this.#losses) [failures, losses] = [0, this.#losses];
      try {
        return await new Promise<void>((resolve, reject) => {
          this.#lost = () => reject(new Error('the connection was lost'));
          this.#check().then(resolve, reject);
        });
      } catch (error) {
        if (failures === failuresBeforeReport) onProblem(noId(error));
        await sleep(clock, retryMs);
      }
    }
  }

  /** Reads the id. Writes a new one if there is none, or if the store lost a sequence that was seen. */
  async #check(): Promise<void> {
    const { row, info, onNewStore } = this.options;
    for (;;) {
      // Read before the request: a sequence that is seen while the request runs may be newer than the response.
      const [seen, reasons] = [{ ...this.#seen }, this.#reasons];
      const [calls, keys] = [await info(callsBucket), await info(keysBucket)];
      const last = { [callsBucket]: calls.state.last_seq, [keysBucket]: keys.state.last_seq };
      const keysMade = String(keys.created).replace(/\D/g, '');
      const found = await row.read();
      const isOlder = buckets.some((each) => last[each] < seen[each]);
      let value = String(found?.value ?? '');
      if (isOlder || value.split('.')[2] !== keysMade) {
        value = `${randomBytes(12).toString('base64url')}.${randomBytes(18).toString('base64url')}.${keysMade}`;
        const written = await row.write(value, found?.seq ?? 0);
        if (written === undefined) continue;
        last[callsBucket] = written;
      }
      const [id = '', secret = ''] = value.split('.');
      const isNew = this.#id !== '' && this.#id !== id;
      [this.#id, this.#secret, this.#value] = [id, secret, value];
      for (const each of buckets) this.#seen[each] = isOlder ? last[each] : Math.max(this.#seen[each], last[each]);
      if (isNew) onNewStore();
      if (reasons === this.#reasons) return;
    }
  }

  #refreshLater(): void {
    const { clock, row, connection } = this.options;
    const refresh = async () => {
      const found = await row.read();
      if (String(found?.value) === this.#value) await row.write(this.#value, found?.seq ?? 0);
      else this.check();
    };
    clock.at(clock.nowMs() + refreshMs, () => {
      if (connection.isClosed()) return;
      // A lost connection is reported by itself, and the next four refreshes come before the row is too old.
      refresh().catch((error) => {
        if (codeOf(error) === noStream) this.check();
      });
      this.#refreshLater();
    });
  }

  async #watchConnection(): Promise<void> {
    let goOnline = () => {};
    await watchConnection(this.options.connection, (isConnected) => {
      if (isConnected) return goOnline();
      this.#online = new Promise((resolve) => {
        goOnline = resolve;
      });
      this.#losses++;
      this.check();
      this.#lost();
      this.options.onLoss();
    });
    goOnline();
  }

  #tokenOf(seq: number): string {
    return `${seq}.${hash('sha256', `${this.#secret}.${seq}.${this.#secret}`, 'base64url')}`;
  }
}

const noId = (cause: unknown): HostError => {
  const hint = 'calls wait until nats-server answers; look at its log';
  return notExecuted('transport', 'the id of the store on the NATS server cannot be read', hint, { cause });
};
