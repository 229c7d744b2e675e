/**
 * Single messages of the buckets and streams on a NATS server: written with the sequence that they replace, read, and removed.
 * The clients of JetStream write and remove too, but make a timer, an error object and six promises for each row, which took a tenth of the
 * time of a busy host.
 *
 * Invariant: every write ends with an acknowledgement, an error of the server, a lost connection, or a timeout of one second.
 */
import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import type { MsgHdrs } from '@nats-io/transport-node';
import { PendingAnswers } from '../protocol/pending-answers.js';
import { createStores } from './create-stores.js';
import { type Bucket, streamOf, subjectOf } from './names.js';
import { bufferOf, codeOf, type HostParts, loadJetStream, loadNats, noStream } from './nats-client.js';

export interface StoredMessage {
  readonly value: Buffer;
  readonly seq: number;
}

/** A request without an answer, e.g. after a change of the leader, is given up after this time. */
const answerMs = 1_000;
const expectedSequence = 'Nats-Expected-Last-Subject-Sequence';
const notFound = [10037, noStream];

export class Streams {
  /** By the last token of the reply subject. */
  readonly #pending: PendingAnswers<number>;
  /** Headers are encoded when a message is sent, so all writes share them. Those of new rows never change: setting one costs 2 KB. */
  readonly #headers: Readonly<Record<'new' | 'changed', MsgHdrs>>;
  readonly #inbox: string;
  #count = 0;

  private constructor(
    private readonly options: HostParts,
    readonly jsm: JetStreamManager,
    { headers, createInbox }: Awaited<ReturnType<typeof loadNats>>,
  ) {
    const { clock, connection } = options;
    this.#pending = new PendingAnswers(clock, answerMs, () => new Error('no acknowledgement came'));
    this.#headers = { new: headers(), changed: headers() };
    this.#headers.new.set(expectedSequence, '0');
    this.#inbox = `${createInbox()}.`;
    connection.subscribe(`${this.#inbox}*`, {
      callback: (error, { subject, data }) => {
        if (!error) this.#answered(subject.slice(this.#inbox.length), bufferOf(data));
      },
    });
  }

  /** Makes buckets and stream where they are missing. Throws if they have other settings. */
  static async open(options: HostParts): Promise<Streams> {
    const { jetstreamManager } = await loadJetStream();
    const jsm = await jetstreamManager(options.connection, { timeout: answerMs });
    await createStores(jsm, options.replicas);
    return new Streams(options, jsm, await loadNats());
  }

  /** Resolves with the sequence. `previousSeq`: 0 if there must be no message. `code` of an error is that of JetStream. */
  put(subject: string, value: Uint8Array, previousSeq: number): Promise<number> {
    return this.#send(subject, value, () => {
      if (previousSeq === 0) return this.#headers.new;
      this.#headers.changed.set(expectedSequence, String(previousSeq));
      return this.#headers.changed;
    });
  }

  remove(bucket: Bucket, seq: number): Promise<number> {
    const subject = `$JS.API.STREAM.MSG.DELETE.${streamOf(bucket)}`;
    return this.#send(subject, Buffer.from(`{"seq":${seq},"no_erase":true}`));
  }

  /** Read at the leader: a direct read may be answered by a follower that is behind. */
  async last(bucket: Bucket, key: string): Promise<StoredMessage | undefined> {
    const request = { last_by_subj: subjectOf(bucket, key) };
    const found = await this.jsm.streams.getMessage(streamOf(bucket), request);
    return found ? { value: bufferOf(found.data), seq: found.seq } : undefined;
  }

  /** Makes the stream again if it was deleted. */
  info(stream: string): Promise<StreamInfo> {
    const look = () => this.jsm.streams.info(stream);
    return look().catch((error) => {
      if (!isMissing(error)) throw error;
      return createStores(this.jsm, this.options.replicas).then(look);
    });
  }

  /** The connection is lost, so no answer will come. */
  fail(): void {
    this.#pending.rejectAll(new Error('the connection was lost'));
  }

  #send(subject: string, value: Uint8Array, headers?: () => MsgHdrs): Promise<number> {
    const id = String(++this.#count);
    this.options.batch.add(() => {
      try {
        const reply = this.#inbox + id;
        this.options.connection.publish(subject, value, headers ? { headers: headers(), reply } : { reply });
      } catch (error) {
        this.#pending.reject(id, error as Error);
      }
    });
    return this.#pending.wait(id);
  }

  #answered(id: string, bytes: Buffer): void {
    try {
      // An empty answer: nothing listens, so there is no stream.
      const answer = bytes.length === 0 ? `{"error":{"err_code":${noStream}}}` : bytes.toString();
      const { seq = 0, error } = JSON.parse(answer) as { seq?: number; error?: { err_code: number } };
      if (!error) return this.#pending.resolve(id, seq);
      this.#pending.reject(id, Object.assign(new Error('the write was refused'), { code: error.err_code }));
    } catch (error) {
      this.#pending.reject(id, error as Error);
    }
  }
}

export const isMissing = (error: unknown): boolean => notFound.includes(codeOf(error));
