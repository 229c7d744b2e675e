/**
 * A socket in the data directory that is for its own user alone.
 * Not here: who may have the place, and what lies there before (control/control-server.ts, stdio-socket.ts).
 *
 * Invariant: it never exists with a mode that lets others in, not even for the moment until a mode could be changed.
 */
import type { Server } from 'node:net';

/** Resolves with why it cannot be had, if so. */
export function listenPrivately(server: Server, file: string): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const failed = (error: NodeJS.ErrnoException) => resolve(error);
    server.once('error', failed);
    // The socket is made within the call to `listen`.
    const before = process.umask(0o177);
    server.listen(file, () => {
      server.off('error', failed);
      // From now on it is one connection that could not be taken.
      server.on('error', () => {});
      resolve(undefined);
    });
    process.umask(before);
  });
}
