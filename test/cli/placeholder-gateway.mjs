/** The smallest parts a gateway can be made of: enough to try the command line around them. */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';

export const createRouter = () => ({});
export const createBridge = () => ({});
export const createMetrics = () => ({ contentType: 'text/plain', text: async () => '', close() {} });
export const healthz = () => ({ status: 200, contentType: 'text/plain', body: 'ok' });
export class Readiness {
  readyz = healthz;
  opened() {}
  stopping() {}
}
export const parseKeys = () => new Map();

export class Keyring {
  #key;
  constructor({ localKey }) {
    this.#key = localKey;
  }
  authenticate(header) {
    return header === `Bearer ${this.#key}` ? { id: 'embedder', role: undefined, scopes: [] } : undefined;
  }
  replace() {}
}

export function readOrMakeLocalKey(dataDir) {
  const file = path.join(dataDir, 'key');
  if (existsSync(file)) return { key: readFileSync(file, 'utf8').trim(), isNew: false };
  const key = `hk_${randomBytes(32).toString('base64url')}`;
  writeFileSync(file, `${key}\n`, { mode: 0o600 });
  return { key, isNew: true };
}

export function createHttpIngress({ authenticate, listen, routes }) {
  const server = http.createServer(async (request, response) => {
    const route = routes.get(request.url);
    const mayPass = route?.needsKey === false || authenticate(request.headers.authorization) !== undefined;
    const { status, body } = !mayPass
      ? { status: 401, body: 'no' }
      : ((await route?.answer()) ?? { status: 200, body: '{}' });
    response.writeHead(status).end(body);
  });
  return {
    counts: { sessions: 0, streams: 0 },
    listen: () =>
      new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(listen.port, listen.host, () => resolve(`http://${listen.host}:${server.address().port}/mcp`));
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

export function createStdioIngress({ input, output }) {
  const closed = new Promise((resolve) => input.once('end', resolve));
  input.on('data', (chunk) => output.write(chunk));
  return { closed, close: async () => input.destroy() };
}
