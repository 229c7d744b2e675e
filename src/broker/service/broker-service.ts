/**
 * The host's side of the broker: takes requests of workers from a link, runs them through the host, and answers.
 * Not here: keeping a link open (service-supervisor.ts), one call from claim to reply (brokered-call.ts), what a role sees
 * (manifests.ts), carrying messages (an engine).
 *
 * Invariants: nothing that one worker does or fails to do ends the service for others; every request is answered and
 * acknowledged once it is over, or comes again; a request that is here already is never begun twice.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { compositeKey, roleKey } from '../../policy/composite-key.js';
import { FairMap } from '../fair-map.js';
import { changedNews } from '../messages.js';
import type { CallJournal, Delivery, HostHandlers, HostLink, Sender } from '../ports.js';
import { BrokeredCall, type CallPorts, replyAgainMs } from './brokered-call.js';
import { Manifests, type RoleManifest } from './manifests.js';
import { type ReplyWords, wordsOf } from './reply-words.js';
import type { ServedHost } from './served-host.js';
import type { ServiceEvent, ServiceStatus } from './service-events.js';
import { type DeskLimits, TurnDesk } from './turn-desk.js';
import { WayMeter } from './way-meter.js';

export interface BrokerServiceOptions {
  readonly host: ServedHost;
  readonly journal: CallJournal;
  /** False: other hosts that serve the same requests have journals of their own, so what one of them had is not begun here. */
  readonly isJournalShared?: boolean;
  /** Journal and messages are one store, which writes in the order it is asked. */
  readonly isOneStore?: boolean;
  readonly clock: Clock;
  /** Workers without a role, or in one that is not listed, may do what the host lets them; otherwise nothing. */
  readonly isRolelessAllowed?: () => boolean;
  /** Bodies in the older shape are taken too, and answered in it. */
  readonly compat?: boolean;
  readonly limits?: Partial<DeskLimits>;
  readonly onEvent?: (event: ServiceEvent) => void;
}

export const deskDefaults: DeskLimits = {
  ...{ running: 256, runningOfOne: 64, waitingOfOne: 1_024 },
  ...{ bytes: 64 * 1024 * 1024, bytesOfOne: 16 * 1024 * 1024 },
};
/** Cancels that are remembered, of all workers: many times what one has under way. */
const cancelsMax = 16_384;
/** A cancel may overtake what it is about, but not by long; clocks differ by as much. */
const overtakeMs = 5_000;
/** Mailboxes whose role is remembered, the latest. */
const workersMax = 10_000;
/** Roles that are named in the status; past it the oldest is left out. */
const unlistedMax = 100;
/** Calls of one worker are over at this pace, about. */
const fullRetryMs = 1_000;
/** For the outcome of what was cancelled by a stop. */
const lastWordsMs = 1_000;

/** When somebody gave up a request: by the clock of this process, and by the wall. */
interface GivenUp {
  readonly atMs: number;
  readonly at: Date;
}

export class BrokerService implements HostHandlers {
  readonly #options: BrokerServiceOptions;
  readonly #desk: TurnDesk;
  readonly #manifests: Manifests;
  readonly #ways: WayMeter;
  readonly #calls = new Map<string, BrokeredCall>();
  /** What it is about may still come, or come again. */
  readonly #cancels = new FairMap<GivenUp>(cancelsMax);
  /** Whom to tell of a changed manifest: mailboxes by role, as they were last seen. */
  readonly #roles = new Map<string, string | undefined>();
  /** Roles whose workers may use nothing, and which were reported. The latest. */
  readonly #unlisted = new Map<string | undefined, true>();
  readonly #counts = { calls: 0, repeated: 0, expired: 0, denied: 0, refused: 0 };
  readonly #ports: CallPorts;
  #isStopping = false;
  #becameIdle = () => {};
  #link: HostLink | undefined;
  #lastError: HostError | undefined;

  constructor(options: BrokerServiceOptions) {
    this.#options = options;
    this.#desk = new TurnDesk({ ...deskDefaults, ...options.limits });
    this.#ways = new WayMeter(options.clock);
    const isRolelessAllowed = options.isRolelessAllowed ?? (() => false);
    this.#manifests = new Manifests({
      host: options.host,
      clock: options.clock,
      isRolelessAllowed,
      onChanged: (role, manifest) => this.#manifestChanged(role, manifest),
      onProblem: (error) => this.#tell({ kind: 'problem', error }),
    });
    this.#ports = {
      host: options.host,
      journal: options.journal,
      clock: options.clock,
      isRolelessAllowed,
      isJournalShared: options.isJournalShared ?? true,
      isOneStore: options.isOneStore ?? false,
      manifestOf: (role) => this.#manifests.of(role),
      tell: (mailbox, ...parts) => this.#link?.tell(mailbox, ...parts),
      onEvent: (event) => this.#tell(event),
    };
  }

  /** From now on news go this way. */
  attach(link: HostLink): void {
    this.#link = link;
    this.#lastError = undefined;
    this.#tell({ kind: 'connected' });
    // What it was told before may be older than what is true now.
    for (const role of new Set(this.#roles.values()))
      this.#manifests.show(roleKey('attached', role), role, (shown) => this.#keep(link, role, shown));
    link.tellAll(changedNews(`attached-${newId()}`));
  }

  /** What runs goes on: its outcome is in the journal when the request comes again. */
  detach(error: HostError | undefined, retryInMs: number): void {
    this.#link = undefined;
    this.#lastError = error;
    this.#tell({ kind: 'disconnected', error, retryInMs });
  }

  status(): ServiceStatus {
    const { running, waiting } = this.#desk;
    const unlistedRoles = [...this.#unlisted.keys()].flatMap((role) => role ?? []);
    return {
      ...{ isConnected: this.#link !== undefined, lastError: this.#lastError, running, waiting },
      ...this.#counts,
      unlistedRoles,
    };
  }

  /** Roles or guards may have changed in a way that the host does not tell. */
  rulesChanged(): void {
    this.#manifests.changed();
  }

  /**
   * Begins nothing more: what comes, or waits for its turn, stays owed and comes again elsewhere. What runs has so long to end;
   * then it is cancelled, and has a moment to have that written down.
   */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    await this.#idle(graceMs);
    for (const call of this.#calls.values()) call.cancel();
    await this.#idle(lastWordsMs);
  }

  /** Ends nothing that runs; the host does, when it closes. */
  close(): void {
    this.#manifests.close();
    for (const call of this.#calls.values()) call.cancel();
  }

  /** Whoever comes may know an older manifest, or none that a host of this start told. */
  joined(who: Sender): void {
    this.#note(who);
    const link = this.#link;
    if (!link) return;
    this.#manifests.show(compositeKey('joined', who.mailbox), who.role, (shown) => {
      // A link that has come since told everybody when it was attached.
      if (link !== this.#link) return;
      this.#noteDenied(who, shown);
      this.#keep(link, who.role, shown, who.mailbox);
      link.tell(who.mailbox, changedNews(shown.manifest.revision));
    });
  }

  #note({ mailbox, role }: Sender): void {
    setBounded(this.#roles, mailbox, role, workersMax);
  }

  cancelled(from: Sender, id: string): void {
    const call = this.#calls.get(compositeKey(from.mailbox, id));
    call?.cancel();
    // Whose key it is may send it anew when it is over; any other comes again only if it could not be answered.
    if (call?.isCallersKey) return;
    const { clock } = this.#options;
    this.#cancels.set(from.mailbox, id, { atMs: clock.nowMs(), at: clock.date() });
  }

  deliver(delivery: Delivery): void {
    if (this.#isStopping) return;
    this.#note(delivery.from);
    const words = wordsOf(delivery.body, this.#options.compat === true);
    try {
      this.#take(delivery, words);
    } catch (error) {
      const known = isHostError(error) ? error : mistake(error);
      // Whoever had it before may have known how to read it.
      const mayHaveRun = !this.#ports.isJournalShared && delivery.wasElsewhere;
      this.#refuse(delivery, words, mayHaveRun ? known.with({ execution: 'uncertain' }) : known);
      if (!isHostError(error)) this.#tell({ kind: 'problem', error });
    }
  }

  #take(delivery: Delivery, words: ReplyWords): void {
    const { from, id, body } = delivery;
    const request = words.request(delivery);
    if (request.op === 'manifest') {
      const leave = () => this.#desk.leave(from.mailbox, body.length);
      const start = () => void this.#answerManifest(delivery, words).finally(leave);
      if (!this.#desk.enter(from.mailbox, body.length, start)) this.#refuse(delivery, words, tooManyWaiting());
      return;
    }
    if (request.callKey !== id) throw invalid('callKey', 'is not the id of its message');
    const key = compositeKey(from.mailbox, id);
    const known = this.#calls.get(key);
    if (known) {
      if (!known.isFor(request)) throw conflict();
      this.#counts.repeated++;
      this.#tell({ kind: 'repeated', from, callKey: id, found: 'running' });
      known.comesAgain(delivery);
      return;
    }
    const delayMs = request.sent ? this.#ways.delayMs(from.mailbox, request.sent) : 0;
    const call = new BrokeredCall(delivery, request, words, this.#ports, delayMs);
    if (this.#wasCancelled(delivery, call)) call.cancel();
    this.#calls.set(key, call);
    const over = () => {
      this.#calls.delete(key);
      this.#desk.leave(from.mailbox, body.length);
      if (this.#calls.size === 0) this.#becameIdle();
    };
    const start = () => {
      // Not from within the desk: as many as wait leave one after the other.
      if (this.#isStopping) return queueMicrotask(over);
      void call
        .run()
        .catch((error) => this.#tell({ kind: 'problem', error }))
        .finally(over);
    };
    this.#counts.calls++;
    if (this.#desk.enter(from.mailbox, body.length, start)) return;
    this.#counts.refused++;
    void call
      .refuse(tooManyWaiting())
      .catch((error) => this.#tell({ kind: 'problem', error }))
      .finally(() => this.#calls.delete(key));
  }

  /**
   * Somebody gave it up, before it came or before it was sent on from where it waited. A caller's key may be wanted again since
   * then; of any other, what is held later than that is a dead letter that was put back.
   */
  #wasCancelled({ from, id, sentAt }: Delivery, { isCallersKey }: BrokeredCall): boolean {
    const givenUp = this.#cancels[isCallersKey ? 'take' : 'get'](from.mailbox, id);
    if (givenUp === undefined) return false;
    if (this.#options.clock.nowMs() - givenUp.atMs <= overtakeMs) return true;
    return !isCallersKey && sentAt !== undefined && sentAt.getTime() - givenUp.at.getTime() <= overtakeMs;
  }

  #idle(limitMs: number): Promise<void> {
    if (this.#calls.size === 0) return Promise.resolve();
    const { clock } = this.#options;
    return new Promise((resolve) => {
      const cancel = clock.at(clock.nowMs() + limitMs, resolve);
      this.#becameIdle = () => {
        cancel();
        resolve();
      };
    });
  }

  async #answerManifest(delivery: Delivery, words: ReplyWords): Promise<void> {
    await this.#manifests.whenSeen();
    const { from, deadlineAt } = delivery;
    // Nobody waits for it: who still wants to know has asked again.
    if (delivery.isRevoked || (deadlineAt && deadlineAt <= this.#options.clock.date())) return delivery.ack();
    try {
      const shown = this.#manifests.of(from.role);
      this.#noteDenied(from, shown);
      await delivery.answer(...words.manifest(shown));
      // It may be another by now.
      if (this.#link) this.#keep(this.#link, from.role, this.#manifests.of(from.role), from.mailbox);
    } catch (error) {
      this.#undelivered(delivery, error);
    }
  }

  /** Answers with an error, without having done anything. */
  #refuse(delivery: Delivery, words: ReplyWords, error: HostError): void {
    this.#counts.refused++;
    delivery.refuse(...words.error(error)).catch((cause) => this.#undelivered(delivery, cause));
  }

  /** A link that is gone brings it again; who can be reached but does not take it must not hold up the others. */
  #undelivered(delivery: Delivery, error: unknown): void {
    if (!isHostError(error)) this.#tell({ kind: 'problem', error });
    // Of a link that is gone nothing is given back: the request comes again by itself.
    if (!isHostError(error) || error.code === 'transport')
      return delivery.release(replyAgainMs, 'its reply was not kept');
    this.#tell({ kind: 'undeliverable', from: delivery.from, callKey: delivery.id, error });
    delivery.ack();
  }

  #noteDenied(from: Sender, { denied }: RoleManifest): void {
    if (!denied) return void this.#unlisted.delete(from.role);
    if (this.#unlisted.has(from.role)) return;
    setBounded(this.#unlisted, from.role, true, unlistedMax);
    this.#tell({ kind: 'unlisted_role', from, error: denied });
  }

  #manifestChanged(role: string | undefined, manifest: RoleManifest): void {
    if (!manifest.denied) this.#unlisted.delete(role);
    const link = this.#link;
    if (!link) return;
    this.#keep(link, role, manifest);
    for (const [mailbox, its] of this.#roles)
      if (its === role) link.tell(mailbox, changedNews(manifest.manifest.revision));
  }

  /** What is done for one worker is done for its mailbox alone: nobody has work done for all by coming and asking. */
  #keep(link: HostLink, role: string | undefined, { body }: RoleManifest, mailbox?: string): void {
    if (link !== this.#link) return;
    // Also what is thrown at once: those who are to be told are told all the same.
    const keep = async () => link.keepManifest?.(role, body, mailbox);
    void keep().catch((error) => this.#tell({ kind: 'problem', error }));
  }

  #tell(event: ServiceEvent): void {
    if (event.kind === 'repeated' && event.found !== 'running') this.#counts.repeated++;
    else if (event.kind === 'expired') this.#counts.expired++;
    else if (event.kind === 'denied') this.#counts.denied++;
    try {
      this.#options.onEvent?.(event);
    } catch {
      // Whoever watches must not disturb those who are served.
    }
  }
}

const conflict = (): HostError =>
  new HostError('key_conflict', 'the key of this call is that of another one, which runs', {
    execution: 'not_executed',
    hint: 'use a new key for each call, and the same one only for the same arguments',
  });

const tooManyWaiting = (): HostError =>
  new HostError('overloaded', 'the host has as many requests of this worker waiting as it may', {
    reason: 'worker_queue',
    execution: 'not_executed',
    retryAfterMs: fullRetryMs,
    hint: 'send fewer at a time, or try again later',
  });

const invalid = (field: string, what: string): HostError =>
  new HostError('invalid_request', `${field} ${what}`, {
    field,
    execution: 'not_executed',
    hint: 'both sides must run versions of Hostler that know each other',
  });

/** What it says may hold anything: it stays here. */
const mistake = (cause: unknown): HostError =>
  new HostError('protocol_error', 'the host could not read the request', {
    execution: 'not_executed',
    hint: 'ask the operator of the host, whose log says why',
    cause,
  });
