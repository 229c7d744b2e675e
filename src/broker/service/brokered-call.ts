/**
 * One call of a worker, from the claim to the reply.
 * Not here: when its turn comes (turn-desk.ts), whether it is here already (broker-service.ts), how much time it has (call-time.ts),
 * in which words it is refused (call-refusals.ts).
 *
 * Invariants: nothing is run that was not claimed before; what was run is in the journal before its reply is sent, and its request
 * is acknowledged after that; a call whose time is over, that nobody waits for, or that is not owed here any more, is not begun.
 */
import { hash } from 'node:crypto';
import { Cancellation } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { Principal } from '../../policy/operation.js';
import type { JsonText } from '../../wire/frame.js';
import { type CallRequest, changedNews, joined, progressNews, requestDigest, traceMeta } from '../messages.js';
import { type Bundle, type CallJournal, type Claimed, type Delivery, messageBytesMax } from '../ports.js';
import {
  ambiguous,
  conflict,
  expired,
  lost,
  nobodyWaits,
  notAllowed,
  notFound,
  ownMistake,
  revoked,
  tooLarge,
} from './call-refusals.js';
import { CallTime } from './call-time.js';
import type { RoleManifest, Target } from './manifests.js';
import type { ReplyWords } from './reply-words.js';
import type { ServedHost } from './served-host.js';
import type { Found, ServiceEvent } from './service-events.js';

export interface CallPorts {
  readonly host: ServedHost;
  readonly journal: CallJournal;
  readonly clock: Clock;
  readonly isRolelessAllowed: () => boolean;
  readonly isJournalShared: boolean;
  /** Journal and messages are one store, which writes in the order it is asked: no reply is held before its outcome is kept. */
  readonly isOneStore: boolean;
  readonly manifestOf: (role: string | undefined) => RoleManifest;
  readonly tell: (mailbox: string, ...parts: readonly JsonText[]) => void;
  readonly onEvent: (event: ServiceEvent) => void;
}

/** What fits into one message, with room for what is around it. */
const replyBytesMax = messageBytesMax - 64 * 1024;
/** News are not owed: what a server says of its progress is a few words, or is left out. */
const progressBytesMax = 64 * 1024;
/** What another host runs is looked at again after this. */
const elsewhereMs = 2_000;
export const replyAgainMs = 1_000;
const notKept = 'its reply was not kept';
/** Of one request at a time; the others are of links that are gone. */
const deliveriesMax = 8;

export class BrokeredCall {
  readonly #request: CallRequest;
  readonly #words: ReplyWords;
  readonly #ports: CallPorts;
  readonly #time: CallTime;
  /** Of the first delivery: what was claimed by it is finished by it. */
  readonly #bundle: Bundle | undefined;
  readonly #cancellation = new Cancellation();
  /** The newest last: links come and go while a call runs. */
  readonly #deliveries: [Delivery, ...Delivery[]];
  /** Said already, to all that had asked by then. */
  #outcome: { readonly parts: readonly JsonText[]; readonly how: 'answer' | 'refuse' } | undefined;

  /** `delayMs`: of its time, what it lost on its way. */
  constructor(delivery: Delivery, request: CallRequest, words: ReplyWords, ports: CallPorts, delayMs: number) {
    this.#deliveries = [delivery];
    this.#time = new CallTime(ports.clock, request, delivery, delayMs);
    this.#bundle = delivery.bundle;
    this.#request = request;
    this.#words = words;
    this.#ports = ports;
  }

  /** Of a key that was made for this call alone, nobody can have asked for anything else. */
  get #of(): string | undefined {
    return this.isCallersKey ? requestDigest(this.#request) : undefined;
  }

  get isCallersKey(): boolean {
    return this.#request.isCallersKey;
  }

  get #delivery(): Delivery {
    return this.#deliveries.at(-1) as Delivery;
  }

  /** Whoever had it before may have run it, or still does, and wrote that down where nobody here can read it. */
  get #mayRunUnseen(): boolean {
    if (this.#ports.isJournalShared) return false;
    return this.#deliveries.some(
      ({ wasElsewhere, heldSince }) => wasElsewhere || (heldSince !== undefined && this.#time.isSentBefore(heldSince)),
    );
  }

  /**
   * Nobody can have begun it before: its key is new, it was sent once and handed out once. Who does not say when it sends does not
   * say that either.
   */
  get #isSurelyFirst(): boolean {
    const { isCallersKey, sent, sentMsAgo } = this.#request;
    if (isCallersKey || sent === undefined || sentMsAgo !== undefined) return false;
    return this.#deliveries.every(({ deliveries, wasElsewhere }) => deliveries <= 1 && !wasElsewhere);
  }

  cancel(): void {
    this.#cancellation.abort();
  }

  /** Whether that is the same call, and not only the same key. */
  isFor({ server, tool, args }: CallRequest): boolean {
    const own = this.#request;
    return own.server === server && own.tool === tool && own.args.equals(args);
  }

  /** The same request over another link, or handed out again: its outcome goes there. */
  comesAgain(delivery: Delivery): void {
    if (this.#outcome) return void this.#answerTo(delivery, this.#outcome.parts, this.#outcome.how);
    this.#deliveries.push(delivery);
    // Of one that is not known here any more nobody would say that it is over, and it would count as handed out for good.
    if (this.#deliveries.length > deliveriesMax)
      this.#deliveries.shift()?.release(elsewhereMs, 'it came too often at once');
  }

  run(): Promise<void> {
    return this.#answering(() => this.#run());
  }

  /** It is not run now; if it was before, that is its outcome all the same. */
  refuse(error: HostError): Promise<void> {
    return this.#answering(() => this.#refuse(error));
  }

  async #answering(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const known = isHostError(error) ? error : ownMistake(error);
      await this.#answer(this.#words.error(known, this.#of), this.#howToSay(known));
      if (!isHostError(error)) throw error;
    }
  }

  /** Of a bundle, what is claimed cannot be refused; that its outcome is not known, or that its key is taken, can be said of it. */
  #howToSay({ code, details }: HostError): 'answer' | 'refuse' {
    const mayBeClaimed = details.execution === 'uncertain' || code === 'key_conflict';
    return this.#bundle !== undefined && mayBeClaimed ? 'answer' : 'refuse';
  }

  async #run(): Promise<void> {
    const { journal, host } = this.#ports;
    const { from, id } = this.#delivery;
    // While it waited here others may have refused it, which leaves no claim: it comes again if it is not over.
    if (this.#deliveries.every(({ isOwed }) => isOwed === false)) return;
    const target = this.#admitted();
    if (isHostError(target)) return this.#refuse(target);
    const isRepeatable = host.mayRunTwice(target.server, target.tool);
    if (this.#mayRunUnseen && !isRepeatable) return this.#refuse(lost(target));
    let claimed: Claimed;
    try {
      claimed = await journal.claim({
        mailbox: from.mailbox,
        key: id,
        bundle: this.#bundle,
        hash: hashOf(target, this.#request.args),
        rememberUntil: this.#time.rememberUntil(),
        isRepeatable,
        firstSentAt: this.#time.firstSentAt(),
      });
    } catch (error) {
      if (!isHostError(error) || this.#isSurelyFirst) throw error;
      return this.#refuse(error);
    }
    if (claimed.kind === 'mine') return this.#execute(target);
    if (claimed.kind === 'conflict') throw conflict(target);
    return this.#found(claimed, target);
  }

  /** What is said of it is what became of it; only what nobody ever began is refused. */
  async #refuse(error: HostError): Promise<void> {
    const { from, id } = this.#delivery;
    const about = { firstSentAt: this.#time.firstSentAt(), bundle: this.#bundle };
    const found = await this.#ports.journal.find(from.mailbox, id, about).catch(() => {
      throw error.with({ execution: 'uncertain' });
    });
    const { server = '*', tool } = this.#request;
    if (found) return this.#found(found, { server, tool });
    throw this.#mayRunUnseen ? lost({ server, tool }) : error;
  }

  #found(found: Exclude<Claimed, { kind: 'mine' | 'conflict' }>, target: Target): Promise<void> {
    this.#repeated(found.kind);
    switch (found.kind) {
      case 'done':
        return this.#answer([found.reply]);
      case 'elsewhere':
        for (const delivery of this.#deliveries) delivery.release(elsewhereMs, 'another host runs it');
        return Promise.resolve();
      // Nobody runs it here any more, or its end could not be written down: either way nobody knows.
      case 'running':
      case 'lost':
        throw lost(target);
      default:
        return found satisfies never;
    }
  }

  /** What is meant, or why it is not begun. */
  #admitted(): Target | HostError {
    try {
      this.#requireWanted();
      return this.#target();
    } catch (error) {
      if (isHostError(error)) return error;
      throw error;
    }
  }

  async #execute(target: Target): Promise<void> {
    const { journal, isOneStore, onEvent } = this.#ports;
    const { from, id } = this.#delivery;
    const outcome = await this.#call(target);
    // Also what surely did not run: the request may come once more, and must not run after its worker was told that it did not.
    const reply = joined(...(isHostError(outcome) ? this.#words.error(outcome, this.#of) : outcome));
    const finished = journal.finish(from.mailbox, id, reply, this.#bundle).catch((error) => {
      // The worker may still hear it now; after a restart the same key is answered as one whose outcome nobody knows.
      onEvent({ kind: 'problem', error });
    });
    // In one store both go to the disk together, and share a sync.
    if (!isOneStore) await finished;
    await this.#answer([reply]);
    await finished;
  }

  async #call(target: Target): Promise<readonly JsonText[] | HostError> {
    const { host, tell } = this.#ports;
    const { args, wantsProgress, callKey, trace } = this.#request;
    try {
      // Claiming took its time too.
      this.#requireWanted();
      const principal = this.#principal();
      const { bytes, era } = await host.call(target.server, target.tool, args, {
        principal,
        // A worker is known by its mailbox, which may have the name of a client's key.
        instance: compositeKey('worker', principal.id),
        deadlineMs: this.#time.runMs,
        signal: this.#cancellation,
        ...(trace ? { meta: traceMeta(trace) } : {}),
        ...(wantsProgress
          ? {
              onProgress: (params) => {
                if (params.length > progressBytesMax) return;
                tell(this.#delivery.from.mailbox, ...progressNews(callKey, params));
              },
            }
          : {}),
      });
      if (bytes.length > replyBytesMax) return tooLarge(target, bytes.length, replyBytesMax);
      return this.#words.result(bytes, era, this.#of);
    } catch (error) {
      return isHostError(error) ? error : ownMistake(error);
    }
  }

  /** Held for the worker, and never handed out again. */
  async #answer(parts: readonly JsonText[], how: 'answer' | 'refuse' = 'answer'): Promise<void> {
    const settled = new Set<Delivery>();
    let delivery: Delivery;
    // Who asks again while the answer is on its way is answered too: nobody else would end that request.
    do {
      delivery = this.#delivery;
      settled.add(delivery);
      const earlier = this.#deliveries.filter((each) => !settled.has(each));
      if (!(await this.#answerTo(delivery, parts, how))) continue;
      // Of links that are gone, or of an earlier handing out: what is over with the newest is over with them.
      for (const each of earlier) {
        settled.add(each);
        each.ack();
      }
    } while (this.#delivery !== delivery);
    // A link that lives holds them as handed out until it hears of each.
    for (const each of this.#deliveries) if (!settled.has(each)) each.release(replyAgainMs, notKept);
    this.#outcome = { parts, how };
  }

  /** False when its link did not take it. */
  async #answerTo(delivery: Delivery, parts: readonly JsonText[], how: 'answer' | 'refuse'): Promise<boolean> {
    const { from, id } = delivery;
    try {
      await delivery[how](...parts);
    } catch (error) {
      // A link that is gone brings the request again; then the journal answers it. One that is not is asked to.
      if (!isHostError(error) || error.code === 'transport') {
        delivery.release(replyAgainMs, notKept);
        return false;
      }
      this.#ports.onEvent({ kind: 'undeliverable', from, callKey: id, error });
      delivery.ack();
    }
    return true;
  }

  /** Which tool is meant, and whether its worker may call it: before anything is written or asked. */
  #target(): Target {
    const { host, manifestOf, tell, isRolelessAllowed } = this.#ports;
    const { server, tool, manifestRevision } = this.#request;
    const { from } = this.#delivery;
    const shown = manifestOf(from.role);
    if (manifestRevision !== undefined && manifestRevision !== shown.manifest.revision)
      tell(from.mailbox, changedNews(shown.manifest.revision));
    const named = (shown.byName.get(tool) ?? []).filter((each) => server === undefined || each.server === server);
    if (named.length > 1) throw ambiguous(tool);
    const [found] = named;
    if (found) return found;
    const principal = this.#principal();
    const isOpen = from.role !== undefined || isRolelessAllowed();
    const servers = server === undefined ? host.names() : [server];
    const isAllowed = isOpen && servers.some((each) => host.isAllowed(principal, each, tool));
    if (!isAllowed) {
      this.#ports.onEvent({ kind: 'denied', from, server, tool });
      throw notAllowed(from.role, server, tool, shown.denied);
    }
    // Its list may not have been read yet: the host will know.
    if (server !== undefined && host.known(server)?.lists.has('tools/list') === false) return { server, tool };
    throw notFound(server, tool);
  }

  #principal(): Principal {
    const { mailbox, role } = this.#delivery.from;
    return { id: mailbox, role, scopes: [] };
  }

  #requireWanted(): void {
    if (this.#cancellation.aborted) throw nobodyWaits();
    if (this.#delivery.isRevoked) throw revoked();
    if (this.#time.isEnough) return;
    const { from, id } = this.#delivery;
    this.#ports.onEvent({ kind: 'expired', from, callKey: id });
    throw expired();
  }

  #repeated(found: Found): void {
    const { from, id } = this.#delivery;
    this.#ports.onEvent({ kind: 'repeated', from, callKey: id, found });
  }
}

const hashOf = ({ server, tool }: Target, args: Buffer): string =>
  hash('sha256', Buffer.concat([Buffer.from(`${server}\0${tool}\0`), args]), 'base64url');
