/** Finds free ports of 127.0.0.1 for drivers, and checks whether a port answers HTTP. */
import { request } from 'node:http';
import { createServer } from 'node:net';

/** Below the ephemeral port range (from 32768 on Linux, from 49152 elsewhere). */
const [lowest, highest] = [20_000, 32_000];

/**
 * Finds a port that stays free while its server is down: an ephemeral port could be assigned to another program between two runs.
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
 * True if the port answers an HTTP request with any status. Each try uses a new connection. The time limit is long, because a busy
 * machine may need seconds for an answer; it only ends a try at a hung server.
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
