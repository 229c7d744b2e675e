/** A way to a server that can be cut without a word to either side, as when a process is killed or a cable is. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface TcpCut {
  readonly url: string;
  /** Connections through it, those that are over included, and those there are. */
  count(): { readonly made: number; readonly open: number };
  /** What the server says from now on does not arrive on the connections there are. */
  deafen(): void;
  /** Ends every connection through it; new ones are let in again. */
  cut(): void;
  close(): Promise<void>;
}

export async function tcpCut(port: number): Promise<TcpCut> {
  const sockets = new Set<Socket>();
  const deaf = new Map<Socket, Socket>();
  let made = 0;
  const server = createServer((near) => {
    made++;
    const far = connect(port, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        deaf.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far);
    far.pipe(near);
    deaf.set(far, near);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    url: `nats://127.0.0.1:${(server.address() as { port: number }).port}`,
    count: () => ({ made, open: deaf.size }),
    deafen() {
      for (const [far, near] of deaf) far.unpipe(near).resume();
    },
    cut,
    async close() {
      cut();
      server.close();
      await once(server, 'close');
    },
  };
}
