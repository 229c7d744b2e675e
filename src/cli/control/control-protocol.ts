/**
 * The protocol of the control socket: one JSON object per line. The answer to a request `{id, op, ...}` is any number of
 * `{id, event}` and then one `{id, result}` or `{id, error}`. Closing the connection ends its requests.
 */
import type { Socket } from 'node:net';
import type { BrokerEngine } from '../../host/broker-status.js';
import { ERRORS, type ErrorCode, HostError, type HostErrorOptions, isHostError } from '../../kernel/errors.js';
import { LineReader } from '../../wire/line-reader.js';
import { realPath } from '../config/find-config.js';
import { socketPath } from '../process/host-address.js';

export const controlPath = (dataDir: string): string => socketPath(dataDir, 'control.sock');

/** Result of the operation `version`. */
export interface RunningFacts {
  readonly version: string;
  readonly pid: number;
  readonly url: string | undefined;
  readonly dataDir: string;
  readonly config: string | undefined;
  readonly startedAt: string;
  /** True while Hostler shuts down; `status` then lists no servers. */
  readonly isStopping?: boolean;
  /** Paths of the parts of the configuration that wait for `hostler trust`; absent if there are none. */
  readonly waiting?: readonly string[];
  /** Absent if this Hostler serves no workers. */
  readonly broker?: BrokerFacts;
  /** Number of connected relays; absent if this Hostler has no socket for them. */
  readonly relays?: number;
  /** Only for a Hostler that a relay started: how long it runs without a client; 0 for no limit. */
  readonly idleExitMs?: number | undefined;
  /** The version of a client that is newer than this Hostler. */
  readonly upgradePending?: string;
  /** Sentences that name the variables for which a client and this Hostler have different values. `notes` has them too. */
  readonly environment?: readonly string[];
  /** Problems of the configuration outside of `mcpServers`, the sentences of `environment`, and a pending upgrade. */
  readonly notes?: readonly string[];
}

/** Says when a pending upgrade takes place. Only a Hostler that a relay started ends by itself. */
export function upgradeNotes({ version, upgradePending, idleExitMs }: Partial<RunningFacts>): readonly string[] {
  if (upgradePending === undefined) return [];
  const when = idleExitMs === undefined ? '' : 'when no call runs and no session is open, or ';
  return [
    `upgrade pending: a client has version ${upgradePending}, this Hostler is ${version}; it is replaced ${when}by hostler restart`,
  ];
}

export interface BrokerFacts {
  readonly engine: BrokerEngine;
  readonly url: string | undefined;
  readonly isConnected: boolean;
  readonly connectedWorkers: number;
  readonly waiting: number;
  readonly running: number;
  readonly oldestMs: number | undefined;
  readonly uncertain: number;
}

/** Error (exit code 2) for a data directory that was named and belongs to another configuration. */
export const configConflict = (dataDir: string, runs: string, wanted: string): HostError =>
  new HostError('invalid_spec', `the data directory ${dataDir} is in use for ${runs}, not for ${wanted}`, {
    field: '--data-dir',
    reason: 'usage',
    hint: 'leave --data-dir out, name another directory, or end that Hostler with hostler down',
  });

/** Undefined if the Hostler that runs has the wanted configuration. */
export function otherConfig(dataDir: string, { config }: Partial<RunningFacts>, wanted: string): HostError | undefined {
  if (config === undefined || realPath(config) === realPath(wanted)) return undefined;
  return configConflict(dataDir, realPath(config), realPath(wanted));
}

export const frameBytesMax = 1024 * 1024;

/** JSON drops an undefined result: send null instead. */
export const frameOf = (value: object): string => `${JSON.stringify(value)}\n`;

/** Calls `broken` for a line that is not an object or is too long. */
export function readFrames(
  socket: Socket,
  onFrame: (frame: Readonly<Record<string, unknown>>) => void,
  broken: (error: HostError) => void,
): void {
  const reader = new LineReader(
    frameBytesMax,
    (bytes, start, end) => {
      if (socket.destroyed) return;
      const frame = parse(bytes.toString('utf8', start, end));
      if (frame) onFrame(frame);
      else broken(new HostError('protocol_error', 'a line on the control socket is not a JSON object'));
    },
    () => broken(new HostError('protocol_error', 'a line on the control socket is too long', { limit: frameBytesMax })),
  );
  socket.on('data', (chunk) => reader.push(chunk));
}

function parse(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** The details of an internal error are not sent. */
export const errorFrame = (error: unknown): Readonly<Record<string, unknown>> =>
  (isHostError(error)
    ? error
    : new HostError('protocol_error', 'internal error of the running Hostler; its log has the details')
  ).toJSON();

export function errorFrom(frame: Readonly<Record<string, unknown>>): HostError {
  const { code, message, retryable: _retryable, ...options } = frame;
  const known = typeof code === 'string' && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'protocol_error';
  return new HostError(known, String(message), options as HostErrorOptions);
}
