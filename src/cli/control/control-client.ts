/**
 * One command's connection to the running Hostler.
 * Not here: what it is asked for (the commands), where its socket lies (control-path.ts).
 */
import { connect, type Socket } from 'node:net';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { errorFrom, frameOf, readFrames } from './control-frames.js';
import type { RunningFacts } from './running-facts.js';

export interface ControlClient {
  /** Resolves with the result; `told` hears what comes before it. */
  ask(op: string, params?: Readonly<Record<string, unknown>>, told?: (event: unknown) => void): Promise<unknown>;
  close(): void;
}

/** A socket of this machine answers at once, or nobody is there. */
const answerMs = 2_000;

export async function connectControl(file: string): Promise<ControlClient> {
  const socket = await open(file);
  const asked = new Map<
    number,
    { told: (event: unknown) => void; done: (reply: Readonly<Record<string, unknown>>) => void }
  >();
  const failed = new Set<(error: HostError) => void>();
  let lastId = 0;
  let brokenBy: HostError | undefined;
  const end = (error: HostError) => {
    brokenBy ??= error;
    for (const fail of failed) fail(brokenBy);
    socket.destroy();
  };
  socket.on('error', () => {});
  socket.once('close', () => end(new HostError('transport', 'the running Hostler went away')));
  readFrames(
    socket,
    (frame) => {
      const waiting = asked.get(frame.id as number);
      if ('event' in frame) waiting?.told(frame.event);
      else waiting?.done(frame);
    },
    end,
  );
  return {
    ask: (op, params = {}, told = () => {}) =>
      new Promise((resolve, reject) => {
        if (brokenBy) return reject(brokenBy);
        const id = ++lastId;
        const over = () => {
          asked.delete(id);
          failed.delete(fail);
        };
        const fail = (error: HostError) => {
          over();
          reject(error);
        };
        failed.add(fail);
        asked.set(id, {
          told,
          done: (reply) => {
            over();
            if ('error' in reply) reject(errorFrom(reply.error as Readonly<Record<string, unknown>>));
            else resolve(reply.result);
          },
        });
        socket.write(frameOf({ ...params, id, op }));
      }),
    close: () => socket.destroy(),
  };
}

/** What whoever has the socket says of itself, which may be nothing; undefined when nobody has it. */
export async function askRunning(file: string, clock: Clock = systemClock): Promise<Partial<RunningFacts> | undefined> {
  let client: ControlClient;
  try {
    client = await connectControl(file);
  } catch {
    return undefined;
  }
  // Somebody holds the socket, whether it answers in time or not.
  const answer = client.ask('version').catch(() => undefined);
  let cancel = () => {};
  const late = new Promise<undefined>((resolve) => {
    cancel = clock.at(clock.nowMs() + answerMs, () => resolve(undefined));
  });
  const said = (await Promise.race([answer, late])) as Partial<RunningFacts> | null | undefined;
  cancel();
  client.close();
  return said ?? {};
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
  const isAbsent = code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'ENOTSOCK';
  return new HostError(
    'connect_failed',
    isAbsent ? 'no Hostler is running for this data directory' : `the running Hostler cannot be reached (${code})`,
    {
      reason: code,
      execution: 'not_executed',
      hint: isAbsent
        ? `start one with: hostler up (looked for ${file}; --data-dir gives another place)`
        : `see that you may open ${file}; it belongs to the user who started Hostler`,
    },
  );
}
