/**
 * How many requests a host takes out of the streams, by how many calls its service runs at a time.
 * Not here: handing them out in turn (nats-lanes.ts), running them (service/).
 *
 * Invariant: while fewer run than may, there is room for a mailbox that has nothing handed out. Only those that run all they may
 * have anything waiting at the service, `spare` at most, and there are no more of them than `calls / callsPerWorker`.
 */
import { bundleCallsMax } from './nats-bundle.js';

export interface Served {
  /** What the service runs at a time, of all mailboxes. */
  readonly calls: number;
  /** And of one. */
  readonly callsPerWorker: number;
}

export interface Windows {
  /** Handed out at a time, over all mailboxes. */
  readonly window: number;
  /** Of one mailbox, with what waits here for its turn. */
  readonly laneWindow: number;
  /** Of one mailbox, of those handed out. */
  readonly laneHandedOut: number;
}

/** Of one mailbox at the service beside what runs, so that a place that becomes free is taken at once. */
const spare = 8;

/** `set`: instead of what goes by that. */
export function windowsOf({ calls, callsPerWorker }: Served, set: Partial<Windows> = {}): Windows {
  const runningOfOne = Math.min(calls, callsPerWorker);
  // A bundle more than may run: it is here when those before it are over.
  const laneWindow = set.laneWindow ?? runningOfOne + bundleCallsMax;
  return {
    window: set.window ?? calls + (Math.ceil(calls / runningOfOne) + 1) * spare,
    laneWindow,
    laneHandedOut: Math.min(laneWindow, set.laneHandedOut ?? runningOfOne + spare),
  };
}
