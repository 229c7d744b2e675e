/**
 * The id of the store, in a row of the bucket of calls. The row also has the time at which the stream of callers' keys was created. If
 * that time has changed, the stream was deleted and created again, and the keys of earlier calls are lost.
 *
 * Invariant: a store that lost acknowledged writes (wiped, an older copy, a restored backup) gets another id before anything else is read
 * or written. So all operations wait for a check of the id after each reconnect, and when a sequence is lower than one seen before.
 */
import { hash, randomBytes } from 'node:crypto';
import { sleep } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { type HostError, notExecuted } from '../../kernel/errors.js';
import {
  type Bucket,
  bodiesStream,
  callsBucket,
  keysBucket,
  storeChanged,
  storeKey,
  streamOf,
  subjectOf,
} from './names.js';
import { codeOf, type HostParts, noStream, watchConnection, wrongSequence } from './nats-client.js';
import type { Streams } from './streams.js';

const retryMs = 100;
/** Number of failed checks over one connection after which the failure is reported. */
const failuresBeforeReport = 20;
/** The row is written again this often, because it must stay younger than the age limit of its bucket. */
const refreshMs = 3 * 60_000;

export class StoreId {
  #id = '';
  /**
   * The text of the row: the id, random bytes, and the time of the stream of keys. It signs the tokens of `seenToken`. Only hosts know it,
   * so a worker cannot invent a token; it is new with each id, so a token of another store id is not valid.
   */
  #value = '';
  /** Highest sequences that this host, another host or a worker has seen. */
  readonly #seen: Record<Bucket, number> = { [callsBucket]: 0, [keysBucket]: 0 };
  /** Counts reasons to check the id. A check that began before the newest reason is repeated. */
  #reasons = 0;
  #losses = 0;
  #checking: Promise<void> | undefined;
  #online = deferred();
  /** Ends the wait for answers of a lost connection. */
  #lost = deferred();

  private constructor(
    private readonly options: HostParts,
    private readonly streams: Pick<Streams, 'info' | 'last' | 'put' | 'fail'>,
  ) {
    this.#online.resolve();
  }

  static async open(options: HostParts, streams: StoreId['streams']): Promise<StoreId> {
    const made = new StoreId(options, streams);
    void made.#watchConnection();
    options.connection.subscribe(storeChanged, { callback: () => made.check() });
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

  async #checkUntilDone(): Promise<void> {
    const { clock, onProblem, connection } = this.options;
    for (let [failures, losses] = [0, this.#losses]; !connection.isClosed(); failures++) {
      await this.#online.promise;
      // A lost connection is reported separately.
      if (losses !== this.#losses) [failures, losses] = [0, this.#losses];
      try {
        return await Promise.race([this.#check(), this.#lost.promise]);
      } catch (error) {
        if (failures === failuresBeforeReport) onProblem(noId(error));
        await sleep(clock, retryMs);
      }
    }
  }

  /** Reads the id. Writes a new one if there is none, or if the store lost a sequence that was seen. */
  async #check(): Promise<void> {
    for (;;) {
      // Read before the request: a sequence that is seen while the request runs may be newer than the response.
      const [seen, reasons] = [{ ...this.#seen }, this.#reasons];
      // Only large replies need this stream, so the others do not wait for it.
      void this.streams.info(bodiesStream).catch(() => {});
      const calls = await this.streams.info(streamOf(callsBucket));
      const keys = await this.streams.info(streamOf(keysBucket));
      const last = { [callsBucket]: calls.state.last_seq, [keysBucket]: keys.state.last_seq };
      const keysMade = String(keys.created).replace(/\D/g, '');
      const found = await this.streams.last(callsBucket, storeKey);
      const isOlder = last[callsBucket] < seen[callsBucket] || last[keysBucket] < seen[keysBucket];
      let value = String(found?.value ?? '');
      if (isOlder || value.split('.')[2] !== keysMade) {
        value = `${randomBytes(12).toString('base64url')}.${randomBytes(18).toString('base64url')}.${keysMade}`;
        const written = await this.#write(value, found?.seq);
        if (written === undefined) continue;
        last[callsBucket] = written;
      }
      const [id = ''] = value.split('.');
      const isNew = this.#id !== '' && this.#id !== id;
      [this.#id, this.#value] = [id, value];
      for (const each of [callsBucket, keysBucket] as const)
        this.#seen[each] = isOlder ? last[each] : Math.max(this.#seen[each], last[each]);
      // The other hosts check the id too.
      if (isNew) this.options.connection.publish(storeChanged);
      if (reasons === this.#reasons) return;
    }
  }

  /** Resolves with undefined if another host was faster. */
  #write(value: string, previousSeq = 0): Promise<number | undefined> {
    return this.streams.put(subjectOf(callsBucket, storeKey), Buffer.from(value), previousSeq).catch((error) => {
      if (!wrongSequence.includes(codeOf(error))) throw error;
      return undefined;
    });
  }

  #refreshLater(): void {
    const { clock, connection } = this.options;
    const refresh = async () => {
      const found = await this.streams.last(callsBucket, storeKey);
      if (String(found?.value) === this.#value) await this.#write(this.#value, found?.seq);
      else this.check();
    };
    clock.at(clock.nowMs() + refreshMs, () => {
      if (connection.isClosed()) return;
      // A lost connection is reported separately, and the next four refreshes come before the row is too old.
      refresh().catch((error) => {
        if (codeOf(error) === noStream) this.check();
      });
      this.#refreshLater();
    });
  }

  async #watchConnection(): Promise<void> {
    await watchConnection(this.options.connection, (isConnected) => {
      if (isConnected) return this.#online.resolve();
      const lost = this.#lost;
      [this.#online, this.#lost] = [deferred(), deferred()];
      this.#losses++;
      this.check();
      lost.promise.catch(() => {});
      lost.reject(new Error('the connection was lost'));
      this.streams.fail();
    });
    this.#online.resolve();
  }

  #tokenOf(seq: number): string {
    return `${seq}.${hash('sha256', `${this.#value}.${seq}.${this.#value}`, 'base64url')}`;
  }
}

const noId = (cause: unknown): HostError => {
  const hint = 'calls wait until nats-server answers; look at its log';
  return notExecuted('transport', 'the id of the store on the NATS server cannot be read', hint, { cause });
};
