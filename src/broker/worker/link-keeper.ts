/**
 * Keeps a worker connected: opens a link, learns the manifest over it, and does so again when it is lost, for ever. One loop for
 * all callers, who wait for it with their own time.
 * Not here: calls (call-table.ts), how long it waits (reconnect-plan.ts).
 *
 * Invariants: link and manifest are swapped as one object, so that nobody sees one without the other; a credential that is
 * refused is final, everything else is tried again; nothing is waited for after success; whether a link is over is decided by
 * what it said, never by how it looks.
 */
import { Cancellation } from '../../kernel/cancel-signal.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError, withoutStack } from '../../kernel/errors.js';
import type { Random } from '../../kernel/random.js';
import { type Manifest, readNews } from '../messages.js';
import type { OpenWorkerLink, Sender, WorkerHandlers, WorkerLink } from '../ports.js';
import type { ManifestAsks } from './manifest-asks.js';
import { ManifestIndex } from './manifest-index.js';
import { ManifestLearner } from './manifest-learner.js';
import { goodMs, reconnectDelayMs } from './reconnect-plan.js';

/** A link that is not open by then is tried anew. */
const openMs = 10_000;
/** So long a link waits for its manifest where an older one is known: with no host about, requests can still be held. */
const manifestMs = 2_000;

/** What calls go by. Never changed, only replaced. */
export interface Snapshot {
  readonly link: WorkerLink | undefined;
  /** Kept while there is no link. Undefined: none was ever learned. */
  readonly manifest: ManifestIndex | undefined;
}

/** `refused` is final: the credential does not count, or the address is none. */
export type LinkState = 'connecting' | 'ready' | 'reconnecting' | 'refused' | 'closed';

export interface LinkKeeperParts {
  readonly open: OpenWorkerLink;
  readonly clock: Clock;
  readonly random: Random;
  readonly asks: ManifestAsks;
  readonly replied: (id: string, body: Buffer) => void;
  readonly progress: (callKey: string, params: Buffer) => void;
  readonly swapped: (now: Snapshot, before: Snapshot) => void;
  readonly changed: (state: LinkState, error: HostError | undefined) => void;
}

interface OpenLink {
  readonly link: WorkerLink;
  readonly learner: ManifestLearner;
  readonly over: (error: HostError | undefined) => void;
}

export class LinkKeeper {
  readonly #parts: LinkKeeperParts;
  readonly #stop = new Cancellation();
  readonly #handlers: WorkerHandlers;
  #snapshot: Snapshot = Object.freeze({ link: undefined, manifest: undefined });
  /** The link that is open, in use or not yet, and what ends it. */
  #open: OpenLink | undefined;
  #state: LinkState = 'connecting';
  #lastError: HostError | undefined;
  #me: Sender | undefined;
  #opened = 0;
  readonly #done: Promise<void>;

  constructor(parts: LinkKeeperParts) {
    this.#parts = parts;
    this.#handlers = { replied: parts.replied, told: (body) => this.#told(body) };
    this.#done = this.#run();
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  get state(): LinkState {
    return this.#state;
  }

  /** Why it is not ready, or was not lately. */
  get lastError(): HostError | undefined {
    return this.#lastError;
  }

  /** Who the broker says that we are; undefined before it ever did. */
  get me(): Sender | undefined {
    return this.#me;
  }

  /** Links that were opened so far. */
  get opened(): number {
    return this.#opened;
  }

  /** A call heard from this link that it is over, perhaps before the link itself said so. */
  broken(link: WorkerLink, error: HostError): void {
    if (this.#open?.link === link) this.#lost(link, error);
  }

  /** Something is not as the manifest says: it is learned anew. */
  stale(): void {
    this.#open?.learner.want();
  }

  /** Resolves when the manifest was asked for, or was lately. Never rejects. */
  look(): Promise<void> {
    return this.#open?.learner.look() ?? Promise.resolve();
  }

  async close(): Promise<void> {
    if (this.#stop.aborted) return this.#done;
    const link = this.#open?.link;
    this.#stop.abort();
    if (link) this.#lost(link, undefined);
    await this.#done;
  }

  async #run(): Promise<void> {
    const { clock, random } = this.#parts;
    // Nothing is opened from within a constructor: whoever made us has its fields by then.
    await undefined;
    for (let failures = 0; !this.#stop.aborted; ) {
      const error = await this.#connect();
      if (this.#stop.aborted) break;
      if (error && isFinal(error)) return this.#become('refused', error);
      failures = error === undefined ? 0 : failures + 1;
      await sleep(clock, reconnectDelayMs(failures, random), this.#stop);
    }
    this.#become('closed', undefined);
  }

  /** One link, from its beginning to its end. Undefined: it was a good one. */
  async #connect(): Promise<HostError | undefined> {
    const { clock } = this.#parts;
    let link: WorkerLink;
    try {
      link = await this.#openLink();
    } catch (cause) {
      const error = isHostError(cause) ? cause : cannotOpen(cause);
      this.#failed(error);
      return error;
    }
    this.#me = link.me;
    this.#opened++;
    const openedAtMs = clock.nowMs();
    const error = await this.#use(link);
    if (error && isFinal(error)) return error;
    return clock.nowMs() - openedAtMs >= goodMs ? undefined : (error ?? linkOver());
  }

  #openLink(): Promise<WorkerLink> {
    const { open, clock } = this.#parts;
    const giveUp = new Cancellation();
    return new Promise((resolve, reject) => {
      let isGivenUp = false;
      const stop = () => {
        isGivenUp = true;
        done();
        giveUp.abort();
        reject(slowToOpen());
      };
      const cancel = clock.at(clock.nowMs() + openMs, stop);
      const done = () => {
        cancel();
        this.#stop.removeEventListener('abort', stop);
      };
      this.#stop.addEventListener('abort', stop);
      open(this.#handlers, giveUp).then(
        (link) => {
          done();
          // It came after all, and nobody wants it any more.
          if (isGivenUp) void link.close().catch(() => {});
          else resolve(link);
        },
        (error) => {
          done();
          reject(error);
        },
      );
    });
  }

  /** Resolves at the end of the link. */
  #use(link: WorkerLink): Promise<HostError | undefined> {
    const { clock, random, asks } = this.#parts;
    return new Promise((resolve) => {
      const learner = new ManifestLearner({
        ...{ clock, random },
        ask: () => asks.ask(link),
        learned: (manifest) => this.#learned(link, manifest),
        failed: (error) => this.#failed(isHostError(error) ? error : cannotOpen(error)),
      });
      const goOn = clock.at(clock.nowMs() + manifestMs, () => this.#goOnWithout(link));
      const over = (error: HostError | undefined) => {
        goOn();
        learner.end();
        asks.lost(link, error ?? linkOver());
        resolve(error);
      };
      this.#open = { link, learner, over };
      link.closed.then(
        (error) => this.#lost(link, error ?? linkOver()),
        (error) => this.#lost(link, linkOver(error)),
      );
      learner.want();
    });
  }

  /** Only of the link that is open: what is asked over one ends with it. */
  #learned(link: WorkerLink, manifest: Manifest): void {
    const before = this.#snapshot.manifest;
    const isSame = before?.revision === manifest.revision;
    // Connected, but refused everything: the status says why there are no tools.
    this.#lastError = manifest.denied && withoutStack(manifest.denied);
    this.#swap({ link, manifest: isSame ? before : new ManifestIndex(manifest) });
    if (this.#state === 'ready' && before?.denied?.message !== manifest.denied?.message)
      this.#parts.changed('ready', this.#lastError);
    else this.#become('ready', this.#lastError);
  }

  #goOnWithout(link: WorkerLink): void {
    const { manifest } = this.#snapshot;
    if (this.#open?.link !== link || !manifest || this.#snapshot.link === link) return;
    this.#swap({ link, manifest });
    this.#become('ready', this.#lastError);
  }

  #failed(error: HostError): void {
    if (this.#stop.aborted) return;
    this.#lastError = withoutStack(error);
    if (this.#state === 'connecting' || this.#state === 'reconnecting')
      this.#parts.changed(this.#state, this.#lastError);
  }

  /** Once for each link. */
  #lost(link: WorkerLink, error: HostError | undefined): void {
    if (this.#open?.link !== link) return;
    const { over } = this.#open;
    this.#open = undefined;
    over(error);
    if (error) this.#lastError = withoutStack(error);
    const { manifest } = this.#snapshot;
    if (this.#snapshot.link === link) this.#swap({ link: undefined, manifest });
    if (!this.#stop.aborted) this.#become(manifest ? 'reconnecting' : 'connecting', this.#lastError);
    // It may think that it still lives. Nobody waits for it to agree.
    void link.close().catch(() => {});
  }

  #told(body: Buffer): void {
    const news = readNews(body);
    switch (news?.kind) {
      case 'progress':
        return this.#parts.progress(news.callKey, news.params);
      case 'manifest_changed':
        if (news.revision !== this.#snapshot.manifest?.revision) this.stale();
        return;
      case undefined:
        return;
    }
  }

  #swap(now: Snapshot): void {
    const before = this.#snapshot;
    this.#snapshot = Object.freeze(now);
    this.#parts.swapped(now, before);
  }

  #become(state: LinkState, error: HostError | undefined): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#parts.changed(state, error);
  }
}

/** Trying again with the same credential, or the same address, changes nothing. */
const isFinal = ({ code }: HostError): boolean =>
  code === 'unauthenticated' || code === 'denied' || code === 'invalid_spec';

const slowToOpen = (): HostError =>
  new HostError('connect_failed', `the broker did not let us in within ${openMs / 1_000} s`, {
    reason: 'slow',
    execution: 'not_executed',
    hint: 'see whether the broker runs and can be reached',
  });

const cannotOpen = (cause: unknown): HostError =>
  new HostError('connect_failed', 'the broker cannot be used', {
    execution: 'not_executed',
    hint: 'see whether the broker runs and can be reached',
    cause,
  });

const linkOver = (cause?: unknown): HostError =>
  new HostError('transport', 'the connection to the broker is over', {
    hint: 'the worker connects again by itself',
    cause,
  });
