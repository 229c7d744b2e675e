/** Ports of 127.0.0.1 for drivers: one that is free, and whether HTTP is answered at one. */
import { request } from 'node:http';
import { createServer } from 'node:net';

/** Below the range from which systems choose ports themselves (32768 and up on Linux, 49152 elsewhere). */
const [lowest, highest] = [20_000, 32_000];

/**
 * A port that stays free while its server is down: one that the system hands out to others by itself could be taken between two
 * runs of the server.
 */
export async function freePort() {
  for (let tries = 0; tries < 100; tries++) {
    const port = lowest + Math.floor(Math.random() * (highest - lowest));
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port from ${lowest} to ${highest} in 100 tries`);
}

const isFree = (port) =>
  new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });

/**
 * True when the port answers an HTTP request, whatever the status. Each try has a connection of its own. The time limit only ends
 * a try at a server that hangs: a busy machine may need seconds for an answer.
 */
export const answersHttp = (port) =>
  new Promise((resolve) => {
    const sent = request({ host: '127.0.0.1', port, path: '/mcp', agent: false, timeout: 20_000 }, (response) => {
      response.resume();
      resolve(true);
    });
    sent.on('timeout', () => sent.destroy());
    sent.on('error', () => resolve(false));
    sent.end();
  });
