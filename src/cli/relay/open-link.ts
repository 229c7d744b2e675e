/** Opens one connection to the host of a data directory, and waits for its welcome. */
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import type { Clock } from '../../kernel/clock.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import { type Hello, helloBytesMax, parseGreeting, relayProtocol, type Welcome } from './hello.js';

export type Opened =
  | { readonly kind: 'connected'; readonly socket: Socket; readonly welcome: Welcome }
  /** No host listens. */
  | { readonly kind: 'absent' }
  /** A host listens and will end. */
  | { readonly kind: 'stopping' }
  /** `isFinal`: another attempt would fail for the same reason. */
  | { readonly kind: 'failed'; readonly reason: string; readonly isFinal?: boolean }
  /** The host runs another configuration. */
  | { readonly kind: 'refused'; readonly config: string }
  /** This process cannot use the socket, as in the sandbox of a client. */
  | { readonly kind: 'unreachable'; readonly code: string };

const NEWLINE = 0x0a;
const welcomeMs = 10_000;

/** Codes of a host that ends after the connection was opened and before it sends its welcome. */
const goneCodes: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);
const absentCodes: ReadonlySet<string> = new Set(['ENOENT', 'ECONNREFUSED']);
/** A shortage of system resources, or a race with another process: the next attempt may succeed. */
const passingCodes: ReadonlySet<string> = new Set([
  ...['EAGAIN', 'EINTR', 'EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'ETIMEDOUT', 'EBUSY', 'EADDRINUSE'],
]);

/**
 * True if the system refuses the socket to this process, now and later, so that it must serve its client itself. Sandboxes and file
 * systems (FUSE, 9p) have many codes for this, so every code without another known meaning is taken as a refusal.
 */
export const isRefusedBySystem = (code: string | undefined): code is string =>
  code !== undefined &&
  /^E[A-Z0-9]+$/.test(code) &&
  ![absentCodes, goneCodes, passingCodes].some((codes) => codes.has(code));

/** Rejects if another user may have opened the socket: the hello holds secrets. */
export async function openLink(file: string, hello: Hello, clock: Clock): Promise<Opened> {
  requireTrusted(path.dirname(file));
  return new Promise((resolve) => {
    const socket = connect({ path: file, allowHalfOpen: true });
    let received: Buffer = Buffer.alloc(0);
    const settle = (opened: Opened) => {
      cancel();
      socket.removeAllListeners();
      // Errors after this are followed by `close`.
      socket.on('error', () => {});
      if (opened.kind !== 'connected') socket.destroy();
      resolve(opened);
    };
    const cancel = clock.at(clock.nowMs() + welcomeMs, () =>
      settle({ kind: 'failed', reason: `the running Hostler did not answer for ${welcomeMs / 1_000} s` }),
    );
    socket.once('error', ({ code = 'unknown' }: NodeJS.ErrnoException) => {
      if (absentCodes.has(code)) settle({ kind: 'absent' });
      else if (goneCodes.has(code)) settle({ kind: 'stopping' });
      else if (isRefusedBySystem(code)) settle({ kind: 'unreachable', code });
      else settle({ kind: 'failed', reason: `${file} cannot be connected to (${code})` });
    });
    socket.once('connect', () => socket.write(`${JSON.stringify(hello)}\n`));
    socket.once('end', () => settle({ kind: 'stopping' }));
    socket.on('data', (chunk: Buffer) => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
      const end = received.indexOf(NEWLINE);
      if (end < 0 && received.length <= helloBytesMax) return;
      socket.pause();
      const opened = read(socket, received.toString('utf8', 0, Math.max(end, 0)));
      const rest = received.subarray(end + 1);
      settle(opened);
      if (opened.kind === 'connected' && rest.length > 0) socket.unshift(rest);
    });
  });
}

function read(socket: Socket, line: string): Opened {
  const welcome = parseGreeting<Welcome>(line);
  if (!welcome) return { kind: 'failed', reason: 'the running Hostler did not answer with a welcome' };
  const { refused, hostler, version, config, notes } = welcome;
  if (refused === undefined) return { kind: 'connected', socket, welcome };
  if (refused === 'config') return { kind: 'refused', config };
  if (refused === 'full') return { kind: 'failed', reason: notes.join('; ') };
  if (refused === 'stopping' || hostler < relayProtocol) return { kind: 'stopping' };
  return { kind: 'failed', reason: `the running Hostler ${version} is newer than this one; restart the client` };
}
