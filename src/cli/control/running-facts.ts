/** What a running Hostler says of itself, on both ends of the control socket. */
export interface RunningFacts {
  readonly version: string;
  readonly pid: number;
  readonly url: string | undefined;
  readonly dataDir: string;
  readonly config: string | undefined;
  readonly startedAt: string;
  /** Parts of the configuration that wait for `hostler trust`, as paths; absent when none does. */
  readonly waiting?: readonly string[];
  /** What an operator should correct, and no single server shows. */
  readonly notes?: readonly string[];
}
