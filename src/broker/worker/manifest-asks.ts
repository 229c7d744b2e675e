/**
 * Asks a host for its manifest over a link: one question, one answer or one error.
 * Not here: when to ask, and again (manifest-learner.ts).
 *
 * Invariants: an answer that cannot be read, and one that is an error, are errors here and never an empty manifest; every
 * question ends, with its answer, its link or its time.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import type { Manifest } from '../messages.js';
import type { WorkerLink } from '../ports.js';
import type { Dialect } from './dialect.js';

/** A host that is there answers sooner; one that is not gets the next question when it is. */
const askMs = 10_000;

interface Asked {
  readonly link: WorkerLink;
  answered(body: Buffer): void;
  failed(error: HostError): void;
}

export class ManifestAsks {
  readonly #clock: Clock;
  readonly #dialect: Dialect;
  /** One for each link that is asked: bounded by them, and by their time. */
  readonly #asked = new Map<string, Asked>();

  readonly #links = new WeakSet<WorkerLink>();

  constructor(clock: Clock, dialect: Dialect) {
    this.#clock = clock;
    this.#dialect = dialect;
  }

  /**
   * The first time over a link, what is kept there will do: a host may not be about. Afterwards somebody has a reason to ask, and a host
   * that is there knows better than what it kept.
   */
  async ask(link: WorkerLink): Promise<Manifest> {
    const isFirst = !this.#links.has(link);
    this.#links.add(link);
    const kept = () => link.readManifest?.() ?? Promise.resolve(undefined);
    if (isFirst) return this.#read((await kept()) ?? (await this.#request(link)));
    try {
      return this.#read(await this.#request(link));
    } catch (error) {
      const instead = await kept();
      if (instead === undefined) throw error;
      return this.#read(instead);
    }
  }

  /** What was asked over it is not answered any more. */
  lost(link: WorkerLink, error: HostError): void {
    for (const asked of [...this.#asked.values()]) if (asked.link === link) asked.failed(error);
  }

  /** Whether the reply was one to a question of ours. */
  take(id: string, body: Buffer): boolean {
    const asked = this.#asked.get(id);
    asked?.answered(body);
    return asked !== undefined;
  }

  #request(link: WorkerLink): Promise<Buffer> {
    const id = `m-${newId()}`;
    return new Promise((resolve, reject) => {
      let cancel: Cancel = () => {};
      const end = (settle: () => void) => {
        cancel();
        if (this.#asked.delete(id)) settle();
      };
      const failed = (error: HostError) => end(() => reject(error));
      this.#asked.set(id, { link, failed, answered: (body) => end(() => resolve(body)) });
      cancel = this.#clock.at(this.#clock.nowMs() + askMs, () => {
        link.cancel(id);
        failed(unanswered());
      });
      link.send({ id, body: this.#dialect.manifestRequest(), ttlMs: askMs }).catch(failed);
    });
  }

  #read(body: Buffer): Manifest {
    const reply = this.#dialect.readReply(body);
    switch (reply.kind) {
      case 'manifest':
        return reply.manifest;
      case 'error':
        throw reply.error;
      case 'result':
        throw new HostError('protocol_error', 'the host answered the question for its tools with something else', {
          hint: 'both sides must run versions of Hostler that know each other',
        });
    }
  }
}

const unanswered = (): HostError =>
  new HostError('timeout', `no host told its tools within ${askMs / 1_000} s`, {
    execution: 'not_executed',
    reason: 'no_host',
    hint: 'see whether the host is connected to the broker',
  });
