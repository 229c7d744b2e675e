/**
 * The control socket in the data directory, through which the other commands use the running Hostler. Its clients have all
 * rights of Hostler, so only the same user can open it.
 * Not here: the operations (operations.ts), the protocol (control-protocol.ts).
 * Invariants: one Hostler owns a data directory, so a socket that answers is never replaced. The end of a connection aborts its
 * requests. The numbers of connections, requests and unread bytes are bounded.
 */
import { type BigIntStats, chmodSync, renameSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { fetchRunningFacts } from './control-client.js';
import { errorFrame, frameOf, otherConfig, type RunningFacts, readFrames } from './control-protocol.js';

export interface OperationContext {
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
  readonly emit: (event: unknown) => void;
}

export type Operation = (request: Readonly<Record<string, unknown>>, context: OperationContext) => Promise<unknown>;
export type Operations = Readonly<Record<string, Operation>>;

export interface ControlServer {
  close(): Promise<void>;
}

const connectionsMax = 64;
const requestsMax = 16;
/** A client with more unread bytes is disconnected. */
const unreadBytesMax = 16 * 1024 * 1024;

/**
 * Rejects if another Hostler owns the data directory. If that Hostler has another `config`, it is a usage error that names both
 * files. `operations` is called for each request, so the set can grow later.
 */
export async function openControl(
  file: string,
  operations: () => Operations,
  clock: Clock = systemClock,
  config?: string,
): Promise<ControlServer> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    if (sockets.size >= connectionsMax) return void socket.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    serve(socket, operations);
  });
  await bind(server, file, clock, config);
  return {
    close: () =>
      new Promise((resolve) => {
        // `close` also removes the socket file.
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/**
 * Listens on a socket that only this user can open. `umask` is set before `listen`, so the socket never has a wider mode.
 * Resolves with the error of `listen`, or undefined.
 */
export function listenPrivately(server: Server, file: string): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const failed = (error: NodeJS.ErrnoException) => resolve(error);
    server.once('error', failed);
    // `listen` creates the socket before it returns.
    const before = process.umask(0o177);
    server.listen(file, () => {
      server.off('error', failed);
      // Removed first, so that a server that listens again has this listener only once.
      server.off('error', ignore);
      server.on('error', ignore);
      resolve(undefined);
    });
    process.umask(before);
  });
}

/** A later error concerns one connection only. */
const ignore = () => {};

/** Another Hostler that starts at the same moment may replace the stale socket; `bind` then tries again. */
const triesMax = 3;

async function bind(server: Server, file: string, clock: Clock, wanted: string | undefined): Promise<void> {
  for (let tries = 1; ; tries++) {
    const listenError = await listenPrivately(server, file);
    if (listenError === undefined) return chmodSync(file, 0o600);
    const found = statSync(file, { throwIfNoEntry: false, bigint: true });
    if (listenError.code !== 'EADDRINUSE' || tries === triesMax) throw unusable(file, listenError);
    if (found === undefined) continue;
    if (!found.isSocket()) throw unusable(file, listenError);
    const other = await fetchRunningFacts(file, clock);
    if (other !== undefined) throw (wanted && otherConfig(path.dirname(file), other, wanted)) ?? inUse(file, other);
    removeStale(file, found);
  }
}

/** Renames the socket before it is removed: if another Hostler has just created it, the socket is renamed back. */
function removeStale(file: string, stale: BigIntStats): void {
  const aside = `${file}.${process.pid}`;
  try {
    renameSync(file, aside);
  } catch {
    // Another Hostler removed it first.
    return;
  }
  const { ino, mtimeNs } = statSync(aside, { bigint: true });
  // The inode number alone is not enough: a new file may reuse it at once.
  if (ino === stale.ino && mtimeNs === stale.mtimeNs) rmSync(aside, { force: true });
  else renameSync(aside, file);
}

/** `idleExitMs` is set only for a host that a client started. */
function inUse(file: string, { pid, idleExitMs }: Partial<RunningFacts>): HostError {
  const other = `another Hostler${pid === undefined ? '' : ` (pid ${pid})`}`;
  const details = { field: '--data-dir', reason: 'in_use' };
  if (idleExitMs === undefined)
    return new HostError('invalid_spec', `${other} uses this data directory`, {
      ...details,
      hint: `hostler status shows it, and hostler down ends it; its socket is ${file}`,
    });
  return new HostError('invalid_spec', `${other} runs this configuration already, started by a client`, {
    ...details,
    hint: 'hostler status shows it; to serve HTTP: hostler down, then hostler up',
  });
}

const unusable = (file: string, { code = 'unknown' }: NodeJS.ErrnoException): HostError =>
  new HostError('invalid_spec', `the control socket ${file} cannot be opened (${code})`, {
    field: '--data-dir',
    reason: code,
    hint: 'make the data directory writable, or choose another one with --data-dir',
  });

function serve(socket: Socket, operations: () => Operations): void {
  const gone = new AbortController();
  let requests = 0;
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
      if (requests >= requestsMax) return send({ id, error: errorFrame(tooMany()) });
      requests++;
      const context = { signal: gone.signal, emit: (event: unknown) => send({ id, event }) };
      Promise.resolve()
        .then(() => operation(request, context))
        .then(
          (result) => send({ id, result: result ?? null }),
          (error: unknown) => send({ id, error: errorFrame(error) }),
        )
        .finally(() => requests--);
    },
    () => socket.destroy(),
  );
}

const unknownOperation = (op: string): HostError =>
  new HostError('invalid_request', `the running Hostler has no operation '${op.slice(0, 100)}'`, {
    hint: 'the running Hostler may have another version: stop it, then start this version with: hostler up',
  });

const tooMany = (): HostError =>
  new HostError('overloaded', 'too many requests at once on this control connection', { limit: requestsMax });
