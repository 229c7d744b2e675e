/**
 * What the broker of a host reports, for `status` and metrics. Declared here, because the gateway and the broker must not
 * import each other.
 */

/** How workers reach a host, and where it stores their calls: WebSocket and SQLite, or NATS. */
export type BrokerEngine = 'embedded' | 'nats';

export interface BrokerStatus extends ServiceStatus, LogUsage {
  readonly engine: BrokerEngine;
  readonly connectedWorkers: number;
  /** False while this host has no connection to NATS. */
  readonly isConnected: boolean;
}

/** Figures of this host. */
export interface ServiceStatus {
  /** Calls that are received and not begun. */
  readonly waiting: number;
  readonly running: number;
  /** Age of the oldest call that waits or runs. */
  readonly oldestMs: number | undefined;
  /** Calls received since the start. */
  readonly calls: number;
  /** Calls that were sent again and not run again. */
  readonly repeated: number;
  readonly expired: number;
  readonly denied: number;
  readonly refused: number;
  /** Calls that may have run and whose outcome is not known. */
  readonly uncertain: number;
  /** Roles of connected workers that may use nothing, because the configuration does not list them. */
  readonly unlistedRoles: readonly string[];
  /** Servers whose tools do not fit into a manifest. */
  readonly tooLarge: readonly string[];
}

/** Rows in the log of calls. */
export interface LogUsage {
  /** Rows whose call is received or running. */
  readonly open: number;
  readonly finished: number;
  readonly replyBytes: number;
  readonly callersKeys: number;
}
