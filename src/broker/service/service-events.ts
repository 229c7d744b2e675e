/** What the service tells whoever watches it. Nothing of it quotes arguments, results or keys. */
import type { HostError } from '../../kernel/errors.js';
import type { Claimed, Sender } from '../ports.js';

/** Where a call stood that came again. */
export type Found = Exclude<Claimed['kind'], 'mine' | 'conflict'>;

export type ServiceEvent =
  | { readonly kind: 'connected' }
  /** `retryInMs`: when it is tried again. */
  | { readonly kind: 'disconnected'; readonly error: HostError | undefined; readonly retryInMs: number }
  | { readonly kind: 'denied'; readonly from: Sender; readonly server: string | undefined; readonly tool: string }
  /** A worker that may use nothing, because of its role. Once for each role, until that changes. */
  | { readonly kind: 'unlisted_role'; readonly from: Sender; readonly error: HostError }
  /** A call came that was run already, or is being run: it was not run again. */
  | { readonly kind: 'repeated'; readonly from: Sender; readonly callKey: string; readonly found: Found }
  | { readonly kind: 'expired'; readonly from: Sender; readonly callKey: string }
  /** The worker did not get it; it is in the journal. */
  | { readonly kind: 'undeliverable'; readonly from: Sender; readonly callKey: string; readonly error: HostError }
  | { readonly kind: 'problem'; readonly error: unknown };

export interface ServiceStatus {
  readonly isConnected: boolean;
  readonly lastError: HostError | undefined;
  readonly running: number;
  readonly waiting: number;
  /** Since the start. */
  readonly calls: number;
  readonly repeated: number;
  readonly expired: number;
  readonly denied: number;
  readonly refused: number;
  /** Roles of workers that may use nothing, because the configuration does not list them. */
  readonly unlistedRoles: readonly string[];
}
