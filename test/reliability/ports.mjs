/** Ports of 127.0.0.1 for drivers: one that is free, and whether HTTP is answered at one. */
import { once } from 'node:events';
import { request } from 'node:http';
import { createServer } from 'node:net';

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** True when the port answers an HTTP request within a second, whatever the status. Each try has a connection of its own. */
export const answersHttp = (port) =>
  new Promise((resolve) => {
    const sent = request({ host: '127.0.0.1', port, path: '/mcp', agent: false, timeout: 1_000 }, (response) => {
      response.resume();
      resolve(true);
    });
    sent.on('timeout', () => sent.destroy());
    sent.on('error', () => resolve(false));
    sent.end();
  });
