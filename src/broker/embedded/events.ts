/**
 * What the broker tells whoever runs it: for logs, metrics and status. No bodies and no keys, ever.
 */
import type { HostError } from '../../kernel/errors.js';
import type { Sender } from '../ports.js';
import type { StoreState } from '../store-port.js';

interface AboutMail {
  readonly mailbox: string;
  readonly seq: number;
  readonly id: string;
  readonly from: Sender;
}

export type BrokerEvent =
  | { readonly kind: 'connected'; readonly name: string; readonly who: Sender; readonly epoch: string }
  /** Before it was let in; `reason` is for operators, who asked hears the same for all. */
  | { readonly kind: 'turned_away'; readonly reason: TurnedAway }
  | {
      readonly kind: 'disconnected';
      readonly name: string;
      readonly who: Sender;
      readonly epoch: string;
      readonly reason: string;
      /** Messages and frames of its that were refused. */
      readonly refused: number;
    }
  | { readonly kind: 'replaced'; readonly mailbox: string }
  /** Somebody acted on what it does not hold any more. */
  | { readonly kind: 'fenced'; readonly mailbox: string; readonly seq: number }
  /** Once until there is room again. */
  | { readonly kind: 'mailbox_full'; readonly mailbox: string; readonly count: number; readonly bytes: number }
  | ({ readonly kind: 'redelivered'; readonly reason: string; readonly deliveries: number } & AboutMail)
  | ({ readonly kind: 'dead_letter'; readonly reasons: readonly string[] } & AboutMail)
  | ({ readonly kind: 'dropped'; readonly reason: Dropped } & AboutMail)
  | ({ readonly kind: 'unreadable' } & AboutMail)
  | { readonly kind: 'rekeyed'; readonly cut: number }
  | { readonly kind: 'problem'; readonly error: HostError };

/** So old that nobody can want it; a reply that was handed out as often as it may be and never taken; or of somebody, or for somebody, whose key is gone or says something else now. */
export type Dropped = 'stale' | 'not_taken' | 'revoked';

export type TurnedAway =
  | 'bad_hello'
  | 'unknown_key'
  | 'hello_timeout'
  | 'left_before_hello'
  | 'too_many_connections'
  | 'wrong_host_or_origin'
  | 'wrong_path';

export interface BrokerStatus {
  readonly connections: number;
  readonly mailboxes: readonly MailboxStatus[];
  readonly held: number;
  readonly redeliveries: number;
  readonly refused: number;
  readonly fenced: number;
  readonly turnedAway: number;
  readonly deadLetters: number;
  readonly store: StoreState;
}

export interface MailboxStatus {
  readonly mailbox: string;
  readonly count: number;
  readonly bytes: number;
  readonly held: number;
  readonly isSubscribed: boolean;
}
