/** What the broker reports to its operator, for the log. No event contains arguments, results or keys. */
import type { HostError } from '../kernel/errors.js';

export type BrokerEvent =
  /** `isAgain`: the session was connected before. */
  | { readonly kind: 'connected'; readonly worker: string; readonly session: string; readonly isAgain: boolean }
  | { readonly kind: 'disconnected'; readonly worker: string; readonly session: string; readonly reason: string }
  /** A connection was refused before it was admitted. */
  | { readonly kind: 'turned_away'; readonly reason: TurnedAway }
  /** This host lost its connection to NATS. */
  | { readonly kind: 'nats_lost'; readonly error: HostError }
  | { readonly kind: 'nats_restored' }
  | { readonly kind: 'denied'; readonly worker: string; readonly server: string | undefined; readonly tool: string }
  /** The role of the worker may use nothing. Reported once for each role, and once more if the role could use something in between. */
  | {
      readonly kind: 'unlisted_role';
      readonly worker: string;
      readonly role: string | undefined;
      readonly error: HostError;
    }
  /** A call may have run, and its outcome is not known. */
  | { readonly kind: 'uncertain'; readonly worker: string; readonly key: string }
  | { readonly kind: 'rekeyed'; readonly closed: number }
  | { readonly kind: 'problem'; readonly error: unknown };

export type TurnedAway =
  | 'bad_session'
  | 'unknown_key'
  | 'upgrade_timeout'
  | 'too_many_connections'
  | 'wrong_host'
  | 'wrong_origin'
  | 'wrong_path';
