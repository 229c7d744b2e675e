/**
 * A host's end on NATS: requests of the mailboxes it serves come out of their streams, its replies go into theirs, and what it
 * tells goes out as it is.
 * Not here: the connection and the streams (nats-host.ts), order and windows (nats-lanes.ts), replies (nats-delivery.ts).
 *
 * Invariants: a mailbox that is not in the table is not served; its role is the table's; nothing is handed out that is not
 * whole JSON, or was handed out too often.
 */
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/frame.js';
import { checkValue } from '../../wire/json-text.js';
import { errorReply, joined } from '../messages.js';
import { type HostHandlers, type HostLink, idPattern, type Sender } from '../ports.js';
import type { NatsConnection } from './nats-connection.js';
import { deliveriesMax, type NatsDeadLetters } from './nats-dead-letters.js';
import type { NatsDelivery } from './nats-delivery.js';
import type { NatsJournal } from './nats-journal.js';
import { handOverMs, NatsLanes } from './nats-lanes.js';
import type { NatsManifests } from './nats-manifests.js';
import { mailboxIn, type Names } from './nats-names.js';
import { NatsParcel } from './nats-parcel.js';
import type { Sweep } from './nats-sweeper.js';
import type { Windows } from './nats-windows.js';

/** What the table says of a mailbox. */
export interface NatsCredential {
  readonly role: string | undefined;
  /** From then on it is not served. */
  readonly expiresAt?: Date | undefined;
}

export interface HostLinkParts {
  readonly connection: NatsConnection;
  readonly names: Names;
  readonly journal: NatsJournal;
  readonly deadLetters: NatsDeadLetters;
  readonly clock: Clock;
  readonly handlers: HostHandlers;
  readonly ackWaitMs: number;
  readonly windows: Windows;
  readonly credentialOf: (mailbox: string) => NatsCredential | undefined;
  readonly manifests: NatsManifests;
  readonly sweep: (what: Sweep, until: Date) => void;
}

export class NatsHostLink implements HostLink {
  readonly closed: Promise<HostError | undefined>;
  readonly #parts: HostLinkParts;
  readonly #lanes: NatsLanes;
  readonly #ends: (() => void)[];
  #end: (why: HostError | undefined) => void = () => {};
  #isOpen = true;

  constructor(parts: HostLinkParts) {
    this.#parts = parts;
    const { connection, names, clock, ackWaitMs, windows } = parts;
    const ended = new Promise<HostError | undefined>((resolve) => {
      this.#end = resolve;
    });
    this.closed = Promise.race([connection.closed, ended]).then((why) => {
      this.#shut();
      return why;
    });
    this.#lanes = new NatsLanes({
      ...{ connection, clock, ackWaitMs, ...windows },
      handOut: (delivery) => this.#handOut(delivery),
      lost: (why) => this.#taken(why),
    });
    this.#ends = [
      connection.subscribe(names.anyCancel, ({ subject }) => this.#cancelled(subject)),
      connection.subscribe(names.anyJoined, ({ subject }) => this.#joined(subject)),
    ];
  }

  /** Its streams are there. Another role is that of whatever is begun from then on, also of what is here already. */
  serve(mailbox: string): void {
    const { names, connection, journal, clock, sweep } = this.#parts;
    if (!this.#isOpen || this.#lanes.has(mailbox) || this.#sender(mailbox) === undefined) return;
    const box = names.of(mailbox);
    const parts = {
      ...{ connection, journal, allNames: names, names: box, now: () => clock.date(), sweep },
      senderNow: () => this.#sender(mailbox),
    };
    this.#lanes.open(box, (message, settled) => new NatsParcel(message, parts, settled));
  }

  leave(mailbox: string): void {
    this.#lanes.close(mailbox);
  }

  tell(mailbox: string, ...parts: readonly JsonText[]): void {
    const { names, connection } = this.#parts;
    if (this.#sender(mailbox) !== undefined) connection.tell(names.of(mailbox).tell, joined(...parts));
  }

  tellAll(...parts: readonly JsonText[]): void {
    this.#parts.connection.tell(this.#parts.names.tellAll, joined(...parts));
  }

  keepManifest(role: string | undefined, body: Buffer, mailbox?: string): Promise<void> {
    return this.#parts.manifests.keep(role, body, mailbox);
  }

  async close(): Promise<void> {
    this.#shut();
    this.#end(undefined);
    const { connection } = this.#parts;
    // What was on its way has come, and then: its giving back is with the server.
    await connection.flush().catch(() => {});
    await connection.flush().catch(() => {});
  }

  /** The connection goes with it: whoever opens the next one looks at all streams again. */
  #taken(why: string): void {
    this.#end(new HostError('transport', `the NATS server took a queue away: ${why}`));
    void this.#parts.connection.close();
  }

  #shut(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    for (const end of this.#ends) end();
    this.#lanes.closeAll();
  }

  #handOut(delivery: NatsDelivery): void {
    if (delivery.isRevoked) {
      delivery.giveBack(handOverMs);
      return this.leave(delivery.from.mailbox);
    }
    if (delivery.fault !== undefined || delivery.deliveries > deliveriesMax)
      return void this.#parts.deadLetters.bury(delivery);
    try {
      checkValue(delivery.body, 'the request');
    } catch (error) {
      return void refuse(delivery, error);
    }
    this.#parts.handlers.deliver(delivery);
  }

  #cancelled(subject: string): void {
    const mailbox = mailboxIn(subject, 2);
    const id = subject.split('.')[3];
    const from = mailbox === undefined ? undefined : this.#sender(mailbox);
    if (from !== undefined && id !== undefined && idPattern.test(id)) this.#parts.handlers.cancelled(from, id);
  }

  #joined(subject: string): void {
    const mailbox = mailboxIn(subject, 2);
    const who = mailbox === undefined ? undefined : this.#sender(mailbox);
    if (who !== undefined) this.#parts.handlers.joined?.(who);
  }

  #sender(mailbox: string): Sender | undefined {
    const credential = this.#parts.credentialOf(mailbox);
    if (credential === undefined) return undefined;
    if (credential.expiresAt !== undefined && credential.expiresAt <= this.#parts.clock.date()) return undefined;
    return { mailbox, role: credential.role };
  }
}

/** What is no JSON is answered, and over. */
async function refuse(delivery: NatsDelivery, error: unknown): Promise<void> {
  const why = isHostError(error) ? error : new HostError('invalid_request', 'the request cannot be read');
  try {
    await delivery.refuse(...errorReply(why.with({ code: 'invalid_request', execution: 'not_executed' })));
  } catch (cause) {
    // Somebody else answers it, or the connection is gone: then it comes again.
    if (isHostError(cause) && cause.code === 'transport') return delivery.giveBack(handOverMs);
    // Its worker does not hear it; coming again would change nothing.
  }
  delivery.ack();
}
