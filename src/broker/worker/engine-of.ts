/**
 * Which engine a broker's address stands for. Engines are loaded when they are asked for: who uses one does not load the other.
 * Invariant: an address that no engine knows is an error that names those there are; nothing of it is quoted but its scheme.
 */
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { mailboxPattern, type OpenWorkerLink } from '../ports.js';

export interface BrokerAddress {
  /** `ws://`, `wss://`, or `nats://` and `tls://` with the mailbox as path: `nats://host:4222/mailbox`. */
  readonly broker: string;
  readonly key: string;
  /** Without TLS also to another machine. */
  readonly insecure?: boolean | undefined;
  readonly clock: Clock;
}

export async function engineOf({ broker, key, clock, insecure = false }: BrokerAddress): Promise<OpenWorkerLink> {
  const url = URL.canParse(broker) ? new URL(broker) : undefined;
  switch (url?.protocol) {
    case 'ws:':
    case 'wss:': {
      const { openWorkerLink } = await import('../embedded/worker-link.js');
      return openWorkerLink({ url: broker, key, clock, insecure });
    }
    case 'nats:':
    case 'tls:': {
      const mailbox = mailboxOf(url);
      const { openNatsWorkerLink } = await import('../nats/nats-worker-link.js');
      return openNatsWorkerLink({ url: `${url.protocol}//${url.host}`, key, mailbox, clock, insecure });
    }
    default:
      throw wrongAddress('must begin with ws://, wss://, nats:// or tls://', 'give the address that the broker shows');
  }
}

/** On NATS a key is let in anywhere its permissions say; which mailbox that is, the address has to name. */
function mailboxOf({ pathname, username, password, search }: URL): string {
  if (username !== '' || password !== '' || search !== '')
    throw wrongAddress('must have no user, password or query', 'give the key in a file');
  const mailbox = pathname.slice(1);
  if (mailboxPattern.test(mailbox)) return mailbox;
  throw wrongAddress('must end with a mailbox', 'write it behind the port, as in nats://host:4222/worker-1');
}

const wrongAddress = (what: string, hint: string): HostError =>
  new HostError('invalid_spec', `the address of the broker ${what}`, {
    field: 'broker',
    execution: 'not_executed',
    hint,
  });
