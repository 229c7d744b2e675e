/**
 * The socket in the data directory through which the other commands speak to the running Hostler. Whoever may open it may do
 * all that Hostler may, so it is for its own user alone.
 * Not here: what can be asked for (operations.ts), the words (control-frames.ts).
 *
 * Invariants: one Hostler at a time has a data directory: a socket that somebody answers on is never replaced; what a client
 * asked for ends with its connection; every table here has a bound.
 */
import { type BigIntStats, chmodSync, renameSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { listenPrivately } from '../private-socket.js';
import { askRunning } from './control-client.js';
import { errorFrame, frameOf, readFrames } from './control-frames.js';

export interface OperationContext {
  /** Aborts when nobody is there any more to hear the answer. */
  readonly signal: AbortSignal;
  /** Tells something before the end. */
  readonly tell: (event: unknown) => void;
}

export type Operation = (request: Readonly<Record<string, unknown>>, context: OperationContext) => Promise<unknown>;
export type Operations = Readonly<Record<string, Operation>>;

export interface ControlServer {
  close(): Promise<void>;
}

const connectionsMax = 64;
const underWayMax = 16;
/** Waiting to be read by one client; past it it is not listening. */
const unreadBytesMax = 16 * 1024 * 1024;

/** Rejects when another Hostler has the data directory. `operations` may be given later than the socket is taken. */
export async function openControl(
  file: string,
  operations: () => Operations,
  clock: Clock = systemClock,
): Promise<ControlServer> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    if (sockets.size >= connectionsMax) return void socket.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    serve(socket, operations);
  });
  await bind(server, file, clock);
  return {
    close: () =>
      new Promise((resolve) => {
        // The socket file goes with the server.
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** Whoever else starts at the same moment may take the place of a socket that was left: then it is looked at again. */
const triesMax = 3;

async function bind(server: Server, file: string, clock: Clock): Promise<void> {
  for (let tries = 1; ; tries++) {
    const inTheWay = await listenPrivately(server, file);
    if (inTheWay === undefined) return chmodSync(file, 0o600);
    const found = statSync(file, { throwIfNoEntry: false, bigint: true });
    if (inTheWay.code !== 'EADDRINUSE' || tries === triesMax) throw unusable(file, inTheWay);
    if (found === undefined) continue;
    if (!found.isSocket()) throw unusable(file, inTheWay);
    const other = await askRunning(file, clock);
    if (other !== undefined) throw inUse(file, other.pid);
    removeLeft(file, found);
  }
}

/**
 * Takes away a socket that nobody answers on. Looked at again once it is out of the way: what somebody else has put there in the
 * meantime goes back.
 */
function removeLeft(file: string, left: BigIntStats): void {
  const aside = `${file}.${process.pid}`;
  try {
    renameSync(file, aside);
  } catch {
    // Somebody else was faster.
    return;
  }
  const { ino, mtimeNs } = statSync(aside, { bigint: true });
  // The number alone is not enough: it is given to the next file at once.
  if (ino === left.ino && mtimeNs === left.mtimeNs) rmSync(aside, { force: true });
  else renameSync(aside, file);
}

const inUse = (file: string, pid: number | undefined): HostError =>
  new HostError('invalid_spec', `another Hostler${pid === undefined ? '' : ` (pid ${pid})`} uses this data directory`, {
    field: '--data-dir',
    reason: 'in_use',
    hint: `stop it, or give this one a directory of its own with --data-dir; its socket is ${file}`,
  });

const unusable = (file: string, { code = 'unknown' }: NodeJS.ErrnoException): HostError =>
  new HostError('invalid_spec', `the control socket ${file} cannot be opened (${code})`, {
    field: '--data-dir',
    reason: code,
    hint: 'see that Hostler may write to the data directory, or give another one with --data-dir',
  });

function serve(socket: Socket, operations: () => Operations): void {
  const gone = new AbortController();
  let underWay = 0;
  const send = (frame: object) => {
    if (socket.destroyed) return;
    socket.write(frameOf(frame));
    if (socket.writableLength > unreadBytesMax) socket.destroy();
  };
  socket.on('error', () => socket.destroy());
  socket.once('close', () => gone.abort());
  readFrames(
    socket,
    (request) => {
      const { id, op } = request;
      if (typeof id !== 'number' || typeof op !== 'string') return void socket.destroy();
      const operation = Object.hasOwn(operations(), op) ? operations()[op] : undefined;
      if (!operation) return send({ id, error: errorFrame(unknownOperation(op)) });
      if (underWay >= underWayMax) return send({ id, error: errorFrame(tooMany()) });
      underWay++;
      const context = { signal: gone.signal, tell: (event: unknown) => send({ id, event }) };
      Promise.resolve()
        .then(() => operation(request, context))
        .then(
          (result) => send({ id, result: result ?? null }),
          (error: unknown) => send({ id, error: errorFrame(error) }),
        )
        .finally(() => underWay--);
    },
    () => socket.destroy(),
  );
}

const unknownOperation = (op: string): HostError =>
  new HostError('invalid_request', `the running Hostler does not know '${op.slice(0, 100)}'`, {
    hint: 'it may be of another version: stop it and start this one with: hostler up',
  });

const tooMany = (): HostError =>
  new HostError('overloaded', 'too much is under way on this connection', { limit: underWayMax });
