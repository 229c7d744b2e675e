/**
 * A host's link to the embedded broker, over a socket or inside its process.
 * Not here: hello, receipts and the end of a connection (link.ts), connecting again (service/service-supervisor.ts).
 *
 * Invariant: each delivery is acknowledged or given back once, whatever is said of it afterwards.
 */
import type { Clock } from '../../kernel/clock.js';
import { newId } from '../../kernel/random.js';
import type { JsonText } from '../../wire/frame.js';
import { joined } from '../messages.js';
import { notOwed } from '../not-owed.js';
import {
  type Delivery,
  type HostHandlers,
  type HostLink,
  hostMailbox,
  idPattern,
  type OpenHostLink,
} from '../ports.js';
import type { BrokerCore } from './broker-core.js';
import type { Message } from './broker-frames.js';
import { ackFrame, type Held, releaseFrame, tellFrame } from './client-frames.js';
import type { Credential } from './credentials.js';
import { type Connect, Link } from './link.js';
import { localWire } from './local-wire.js';
import { type ConnectOptions, connectSocket } from './ws-client.js';

export interface LinkSettings extends ConnectOptions {
  readonly key: string;
}

export interface HostLinkSettings extends LinkSettings {
  /** Of this process; made here when absent. The same for every link of it, so that the broker knows who had a request before. */
  readonly instance?: string;
}

export const openHostLink = ({ instance = newId(), ...settings }: HostLinkSettings): OpenHostLink => {
  if (!idPattern.test(instance)) throw new Error('an instance is 1 to 128 letters, digits, dashes and underscores');
  const connect: Connect = (reader, signal) => connectSocket(settings, reader, signal);
  return hostLinkOver(connect, settings.key, instance, settings.clock);
};

/** Who is in the broker's own process needs no key. */
export const localHostLink = (core: BrokerCore, mailbox = hostMailbox): OpenHostLink => {
  const credential: Credential = {
    ...{ name: 'local', digest: '', mailbox, role: undefined, kind: 'host', sendsTo: [], expiresAtMs: undefined },
  };
  const connect: Connect = async (reader) => localWire((wire) => core.attach(wire, credential), reader);
  return hostLinkOver(connect, '', newId(), core.clock);
};

const hostLinkOver =
  (connect: Connect, key: string, instance: string, clock: Clock): OpenHostLink =>
  async (handlers, signal) => {
    const link: Link = await Link.open(
      {
        ...{ connect, key, instance, clock },
        onFrame(frame) {
          if (frame.kind === 'message') take(link, clock, handlers, frame);
          else if (frame.kind === 'cancel') handlers.cancelled(frame.from, frame.id);
          else if (frame.kind === 'joined') handlers.joined?.(frame.from);
        },
      },
      signal,
    );
    return hostLinkOf(link);
  };

const hostLinkOf = (link: Link): HostLink => ({
  closed: link.closed,
  tell: (mailbox, ...parts) => link.send(tellFrame(mailbox, joined(...parts))),
  tellAll: (...parts) => link.send(tellFrame(undefined, joined(...parts))),
  close: () => link.close(),
});

function take(link: Link, clock: Clock, handlers: HostHandlers, message: Message): void {
  const { seq, lease, id, from, body, deliveries, wasElsewhere, deadlineMs } = message;
  // Replies are for workers; whoever sent one here must not be able to block the mailbox with it.
  if (message.type !== 'request') return link.send(ackFrame(message));
  let isOwed = true;
  const end = (frame: () => Buffer) => {
    if (isOwed) link.send(frame());
    isOwed = false;
  };
  const send = (answers: Held | undefined, parts: readonly JsonText[]) =>
    link.deliver({
      ...{ kind: 'deliver', id, type: 'reply', to: from.mailbox, ttlMs: undefined, answers },
      body: joined(...parts),
    });
  // The reply is held and the request gone with one commit, or neither: enough for what was not begun, too.
  const answer = async (...parts: readonly JsonText[]) => {
    await send(isOwed ? { seq, lease } : undefined, parts);
    isOwed = false;
  };
  const delivery: Delivery = {
    ...{ id, from, body, deliveries, wasElsewhere, heldSince: link.heldSince },
    deadlineAt: deadlineMs === undefined ? undefined : new Date(clock.date().getTime() + deadlineMs),
    reply: (...parts: readonly JsonText[]) => send(undefined, parts),
    answer,
    refuse: async (...parts) => {
      if (!isOwed) throw notOwed();
      await answer(...parts);
    },
    ack: () => end(() => ackFrame({ seq, lease })),
    release: (delayMs, reason) => end(() => releaseFrame({ seq, lease }, delayMs, reason)),
  };
  handlers.deliver(delivery);
}
