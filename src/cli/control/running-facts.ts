/** What a running Hostler says of itself, on both ends of the control socket. */
export interface RunningFacts {
  readonly version: string;
  readonly pid: number;
  readonly url: string | undefined;
  readonly dataDir: string;
  readonly config: string | undefined;
  readonly startedAt: string;
  /** Servers are no longer listed while it stops. */
  readonly isStopping?: boolean;
  /** Parts of the configuration that wait for `hostler trust`, as paths; absent when none does. */
  readonly waiting?: readonly string[];
  /** Mistakes for the operator to correct that belong to no single server. */
  readonly notes?: readonly string[];
}
