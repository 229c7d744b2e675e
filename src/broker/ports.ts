/**
 * The words between whoever carries messages (embedded/, nats/) and whoever uses them (service/ on the host's side, worker/ on
 * the other). Both engines implement them and pass the same suite (test/contract/broker); what uses them cannot tell which
 * one it has.
 * Not here: what is inside a body (messages.ts), how an engine keeps it.
 *
 * Invariants: who sent a message is known from a credential and never from the message; what was promised to be held outlives
 * every process; it is handed out at least once, so whoever acts on it asks a journal first.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { JsonText } from '../wire/frame.js';

export { hostMailbox, mailboxPattern } from '../config/values.js';

/** One message as an engine carries it, with what it puts around a body or without: a body a little smaller fits every engine. */
export const messageBytesMax = 4 * 1024 * 1024;
/** Nobody waits longer for an answer, and no request is held longer. */
export const ttlMsMax = 24 * 3_600_000;

/** A journal remembers a key for so long after it was claimed, at least: clocks are in doubt by as much. */
export const keyKeptMsMin = 10 * 60_000;

/** How much later than it says a journal or a store may have begun, by the clock of whoever sent: between two clocks, and on the way. */
export const beganDoubtMs = 1_000;

/** Of ids on the wire, which are subjects and rows elsewhere. */
export const idPattern = /^[A-Za-z0-9_-]{1,128}$/;

/** As its credential says. */
export interface Sender {
  readonly mailbox: string;
  readonly role: string | undefined;
}

/** Requests that an engine carries as one message. Whoever is handed one of them gives this back to the journal of that engine. */
export interface Bundle {
  /** Unique within the sender's mailbox. */
  readonly id: string;
}

/** A request of a worker in the hands of a host. It is owed until `ack`; lost with the link, it comes again. */
export interface Delivery {
  /** Given once by the worker and kept over every retry: its call key. Unique within the sender's mailbox. */
  readonly id: string;
  /** Where the engine can tell, as the credential says now, and not when the request came. */
  readonly from: Sender;
  /** True: whoever sent it has no credential any more. Undefined: the engine cancels such requests. */
  readonly isRevoked?: boolean;
  readonly body: Buffer;
  /** What it came in, where an engine carries several as one. */
  readonly bundle?: Bundle | undefined;
  /**
   * When it came to be held, by the wall of whoever holds it: only where an engine forgets a cancel once it is told, so that
   * whoever is handed a request has to know by itself.
   */
  readonly sentAt?: Date | undefined;
  /** How often it was handed out, this time included. */
  readonly deliveries: number;
  /** It was, or may have been, in other hands than those of this process before: they may have begun it. */
  readonly wasElsewhere: boolean;
  /** Only where whoever holds it took the place of one that is gone: what was first sent before may have been in any hands. */
  readonly heldSince?: Date | undefined;
  /** False: it was given back or is over, and others may have answered it since. Undefined: the engine does not say. */
  readonly isOwed?: boolean;
  /** On the wall of whoever holds it; undefined: the worker set none. */
  readonly deadlineAt: Date | undefined;
  /** Resolves when the reply is held for the worker; the request is still owed. Rejects with a HostError; the link goes on all the same. */
  reply(...parts: readonly JsonText[]): Promise<void>;
  /**
   * Resolves when the reply is held for the worker, and the request is over with it: in one step where the engine can, so that
   * what was answered does not come again. Rejects as `reply` does, and the request stays owed.
   */
  answer(...parts: readonly JsonText[]): Promise<void>;
  /**
   * The same for what was not begun: the request is over for good before its worker hears so, and therefore cannot run afterwards.
   * Rejects when that could not be done: then its worker was told nothing. To settle it again after that is no mistake.
   */
  refuse(...parts: readonly JsonText[]): Promise<void>;
  /** It is over without a reply, and never comes again. */
  ack(): void;
  /** Given back unfinished: it comes again after `delayMs`, here or elsewhere. `reason` stands in its dead letter. */
  release(delayMs: number, reason: string): void;
}

export interface HostHandlers {
  /** Never throws. No more than the link's window are owed at a time. */
  deliver(delivery: Delivery): void;
  /** Nobody waits for that request any more. It may be unknown here, or over. */
  cancelled(from: Sender, id: string): void;
  /** A worker came, or came back: whoever pushes manifests may look at what it has. */
  joined?(who: Sender): void;
}

export interface HostLink {
  /** Resolves when the link is over: with why, or undefined when it was closed from here. */
  readonly closed: Promise<HostError | undefined>;
  /** Not kept: whoever is not there, or does not read, misses it. */
  tell(mailbox: string, ...parts: readonly JsonText[]): void;
  /** The same for every worker that is there. */
  tellAll(...parts: readonly JsonText[]): void;
  /**
   * Keeps the newest manifest of a role where workers find it with no host about; only where the engine has such a place. With a
   * mailbox: of what is known already, there alone, and only if something else is there.
   */
  keepManifest?(role: string | undefined, body: Buffer, mailbox?: string): Promise<void>;
  /** Hands out nothing more; what is owed comes again elsewhere. */
  close(): Promise<void>;
}

export interface WorkerHandlers {
  /** Never throws. The reply counts as taken when it returns; the same one may come twice. */
  replied(id: string, body: Buffer): void;
  /** What a host told: progress of a request, or that its manifest changed. */
  told(body: Buffer): void;
}

export interface NewRequest {
  readonly id: string;
  readonly body: Buffer;
  /** From now; after it nobody waits, and nobody runs it. */
  readonly ttlMs: number;
  /**
   * Its id was made for it alone, and no sending of it can be held anywhere: it may go as a part of a bundle. Such an id is not
   * sent again after its reply, or after its cancel.
   */
  readonly isFresh?: boolean;
  /**
   * As it reads when it is sent again, which a link does by itself where a request went together with others: with what is left
   * of its time then. Undefined: nobody waits for it any more. Absent: as it read the first time.
   */
  readonly again?: () => Pick<NewRequest, 'body' | 'ttlMs'> | undefined;
}

export interface WorkerLink {
  /** As the credential says; a role of undefined where an engine leaves that to the host. */
  readonly me: Sender;
  readonly closed: Promise<HostError | undefined>;
  /**
   * Resolves when the request is held. The same id again is the same request, never a second one. Rejects with a HostError:
   * `not_executed` when it surely is not held, otherwise it may be.
   */
  send(request: NewRequest): Promise<void>;
  cancel(id: string): void;
  /** What a host kept with `keepManifest`, where there is such a place. */
  readonly readManifest?: () => Promise<Buffer | undefined>;
  close(): Promise<void>;
}

/** Resolves when it is connected, let in and subscribed. `unauthenticated` and `denied` are final: trying again changes nothing. */
export type OpenHostLink = (handlers: HostHandlers, signal: CancelSignal) => Promise<HostLink>;
export type OpenWorkerLink = (handlers: WorkerHandlers, signal: CancelSignal) => Promise<WorkerLink>;

/** What the journal of calls is asked before anything is run. */
export interface CallClaim {
  readonly mailbox: string;
  readonly key: string;
  /** As its delivery has it: the key is one of that bundle. */
  readonly bundle?: Bundle | undefined;
  /** Of server, tool and arguments: the same key with others is a mistake or a trick. */
  readonly hash: string;
  /** Until when it must be remembered: past it, the deadline alone refuses it. */
  readonly rememberUntil: Date;
  /** Its tool may be run again when a host died over it. */
  readonly isRepeatable: boolean;
  /** When somebody may first have run it; undefined: nobody was handed it before. */
  readonly firstSentAt?: Date | undefined;
}

export type Claimed =
  /** Run it: nobody else will. On disk before this is said. */
  | { readonly kind: 'mine' }
  /** It is being run by this process. */
  | { readonly kind: 'running' }
  /** It is being run by another host, which lives. */
  | { readonly kind: 'elsewhere' }
  | { readonly kind: 'done'; readonly reply: Buffer }
  /** Whoever began it is gone; it may have run. */
  | { readonly kind: 'lost' }
  /** The key was used for something else. */
  | { readonly kind: 'conflict' };

/** Decides, over restarts and between hosts, who runs a call. Its functions reject with a HostError when they cannot promise that. */
export interface CallJournal {
  claim(claim: CallClaim): Promise<Claimed>;
  /** What became of a key, without wanting it; undefined: nobody claimed it. `about`: as in a claim. */
  find(
    mailbox: string,
    key: string,
    about?: Pick<CallClaim, 'firstSentAt' | 'bundle'>,
  ): Promise<Exclude<Claimed, { kind: 'mine' | 'conflict' }> | undefined>;
  /** Resolves when the reply will be found by whoever claims the key again. */
  finish(mailbox: string, key: string, reply: Buffer, bundle?: Bundle): Promise<void>;
}
