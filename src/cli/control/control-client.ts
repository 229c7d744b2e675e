/** The connection of one command to the running Hostler. */
import { existsSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import { hostLogPath } from '../process/host-address.js';
import { errorFrom, frameOf, type RunningFacts, readFrames } from './control-protocol.js';

export interface ControlClient {
  /** Resolves with the result. `onEvent` is called for each event before the result. */
  request(op: string, params?: Readonly<Record<string, unknown>>, onEvent?: (event: unknown) => void): Promise<unknown>;
  close(): void;
}

/** A connection to the running Hostler, or a host in this process. */
export interface HostClient extends Pick<ControlClient, 'request'> {
  close(): unknown;
}

interface Pending {
  readonly onEvent: (event: unknown) => void;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: HostError) => void;
}

/** Codes that mean that no process listens on the socket. */
const absentCodes: ReadonlySet<string> = new Set(['ENOENT', 'ECONNREFUSED', 'ENOTSOCK']);

/** A process that does not answer in this time hangs. */
const answerMs = 2_000;

/** Throws if another user may have opened the socket: a command would send its arguments to that user. */
export async function connectControl(file: string): Promise<ControlClient> {
  requireOwn(file);
  const socket = await open(file);
  const pending = new Map<number, Pending>();
  let lastId = 0;
  let brokenBy: HostError | undefined;
  const end = (error: HostError) => {
    brokenBy ??= error;
    for (const { reject } of pending.values()) reject(brokenBy);
    pending.clear();
    socket.destroy();
  };
  socket.on('error', () => {});
  socket.once('close', () => end(new HostError('transport', 'the running Hostler closed the control connection')));
  const onFrame = (frame: Readonly<Record<string, unknown>>) => {
    const request = pending.get(frame.id as number);
    if ('event' in frame) return request?.onEvent(frame.event);
    pending.delete(frame.id as number);
    if ('error' in frame) request?.reject(errorFrom(frame.error as Readonly<Record<string, unknown>>));
    else request?.resolve(frame.result);
  };
  readFrames(socket, onFrame, end);
  return {
    request: (op, params = {}, onEvent = () => {}) =>
      new Promise((resolve, reject) => {
        if (brokenBy) return reject(brokenBy);
        const id = ++lastId;
        pending.set(id, { onEvent, resolve, reject });
        socket.write(frameOf({ ...params, id, op }));
      }),
    close: () => socket.destroy(),
  };
}

/**
 * Returns the facts of the Hostler that owns the socket: `{}` if it cannot answer or be reached, undefined if no process of this
 * user listens.
 */
export async function fetchRunningFacts(
  file: string,
  clock: Clock = systemClock,
): Promise<Partial<RunningFacts> | undefined> {
  let client: ControlClient;
  try {
    requireOwn(file);
  } catch {
    return undefined;
  }
  try {
    client = await connectControl(file);
  } catch (error) {
    // Any other error means that a host runs: its queue is full, or this process is not allowed to connect.
    return isHostError(error) && absentCodes.has(error.details.reason ?? '') ? undefined : {};
  }
  const answer = client.request('version').catch(() => undefined);
  let cancel = () => {};
  const late = new Promise<undefined>((resolve) => {
    cancel = clock.at(clock.nowMs() + answerMs, () => resolve(undefined));
  });
  const facts = (await Promise.race([answer, late])) as Partial<RunningFacts> | null | undefined;
  cancel();
  client.close();
  return facts ?? {};
}

function requireOwn(file: string): void {
  try {
    requireTrusted(path.dirname(file));
  } catch (error) {
    throw isHostError(error) ? error : notRunning(file, error as NodeJS.ErrnoException);
  }
}

function open(file: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(file);
    socket.once('connect', () => {
      socket.removeAllListeners('error');
      resolve(socket);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => reject(notRunning(file, error)));
  });
}

function notRunning(file: string, { code = 'unknown' }: NodeJS.ErrnoException): HostError {
  const log = hostLogPath(path.dirname(file));
  const isAbsent = absentCodes.has(code);
  return new HostError(
    'connect_failed',
    isAbsent ? 'no Hostler is running for this data directory' : `the running Hostler cannot be reached (${code})`,
    {
      reason: code,
      execution: 'not_executed',
      hint: isAbsent
        ? `start one with: hostler up (looked for ${file}; choose another folder with --data-dir)${existsSync(log) ? `; the log of the last one that a client started: ${log}` : ''}`
        : `check the permissions of ${file}; it belongs to the user who started Hostler`,
    },
  );
}

/**
 * Resolves when `work` ends. On Ctrl-C, or when the reader of stdout exits, closes the connection. The error that this causes in
 * `work` is ignored.
 */
export async function untilInterrupted(client: ControlClient, work: Promise<unknown>): Promise<void> {
  let wasInterrupted = false;
  const interrupt = () => {
    wasInterrupted = true;
    client.close();
  };
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  process.stdout.once('error', interrupt);
  try {
    await work;
  } catch (error) {
    if (!wasInterrupted) throw error;
  } finally {
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
    process.stdout.off('error', interrupt);
  }
}
