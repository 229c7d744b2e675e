/**
 * The listener that a browser is redirected to at the end of a login.
 * Invariants: it is bound to loopback only, answers GET at one path with one Host only, and echoes nothing. At most ten requests a
 * second are answered, besides the one redirect of the login.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { HostError } from '../kernel/errors.js';

const answersPerSecond = 10;
const urlCharsMax = 16 * 1024;

const headers = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': "default-src 'none'",
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  connection: 'close',
};
const page = (text: string): string => `<!doctype html><title>Hostler</title><p>${text}</p>`;
const pages = {
  redeeming: page('Login received. You can close this window and return to the terminal.'),
  refused: page('The login was not accepted. The terminal says why.'),
};

export interface CallbackOptions {
  readonly host: '127.0.0.1' | 'localhost';
  /** 0: any free port. */
  readonly port: number;
  readonly path: string;
  /** Judges the parameters of a redirect. Undefined: they do not belong to this login. */
  readonly onReturn: (params: URLSearchParams) => 'redeeming' | 'refused' | undefined;
}

export interface Callback {
  readonly redirectUri: string;
  readonly port: number;
  close(): void;
}

/** Throws `callback_port` if the port is in use. */
export async function openCallback(options: CallbackOptions): Promise<Callback> {
  const { host, path } = options;
  let port = 0;
  let second = 0;
  let answered = 0;
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    const { method, url = '', headers: received } = request;
    const isOurs = url.split('?', 1)[0] === path && received.host === `${host}:${port}` && url.length <= urlCharsMax;
    const isReturn = method === 'GET' && isOurs;
    const outcome = isReturn ? options.onReturn(new URLSearchParams(url.slice(path.length + 1))) : undefined;
    // The redirect of this login is answered, however many other requests there are.
    if (outcome) return end(response, 200, pages[outcome]);
    const nowS = Math.floor(performance.now() / 1_000);
    if (nowS !== second) [second, answered] = [nowS, 0];
    if (++answered > answersPerSecond) return request.destroy();
    end(response, isReturn ? 400 : 404);
  };
  const first = await bind(handle, '127.0.0.1', options.port);
  port = (first.address() as AddressInfo).port;
  // A browser may resolve localhost to IPv6. Another program that listens on this port there would receive the code.
  const other = host === 'localhost' ? await bindIpv6(handle, port, () => first.close()) : undefined;
  return {
    port,
    redirectUri: `http://${host}:${port}${path}`,
    close() {
      for (const server of [first, other]) {
        server?.close();
        // The answer to the browser may not be fully sent yet.
        setTimeout(() => server?.closeAllConnections(), 50).unref();
      }
    },
  };
}

function end(response: ServerResponse, status: number, body = ''): void {
  response.writeHead(status, headers).end(body);
}

function bind(handle: (request: IncomingMessage, response: ServerResponse) => void, host: string, port: number) {
  const server = createServer({ maxHeaderSize: 32 * 1024, requestTimeout: 5_000, headersTimeout: 5_000 }, handle);
  server.maxConnections = 64;
  return new Promise<Server>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => reject(busy(port, cause)));
    server.listen(port, host, () => resolve(server));
  });
}

/** Undefined: this machine has no IPv6. */
async function bindIpv6(handle: Parameters<typeof bind>[0], port: number, undo: () => void) {
  try {
    return await bind(handle, '::1', port);
  } catch (error) {
    if (['EADDRNOTAVAIL', 'EAFNOSUPPORT'].includes((error as { cause?: NodeJS.ErrnoException }).cause?.code ?? ''))
      return undefined;
    undo();
    throw error;
  }
}

const busy = (port: number, cause: NodeJS.ErrnoException): HostError =>
  new HostError('invalid_spec', `port ${port} of the redirect URI cannot be used (${cause.code})`, {
    field: 'auth.redirect.port',
    reason: 'callback_port',
    execution: 'not_executed',
    hint: 'stop the program that uses the port, or choose another with --port if the redirect URI of the client allows it',
    cause,
  });
