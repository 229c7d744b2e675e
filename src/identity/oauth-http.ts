/**
 * HTTP requests to authorization servers and for their metadata. Connections use the pools of transports/http, so proxy and
 * certificate settings are the same as for servers.
 * Invariants: https, or http on loopback. A URL that a server named leads to the public internet, to an origin that the operator
 * wrote, or to loopback if the server is there. No redirect is followed here. Time and size are bounded.
 */
import { isLoopback } from '../config/values.js';
import { ByteBuffer } from '../kernel/byte-buffer.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { Environment } from '../transports/environment.js';
import { checkUrl, guardedDial } from '../transports/http/dial-guard.js';
import type { ResponseHeaders } from '../transports/http/headers.js';
import { type ExchangeSink, HttpExchange } from '../transports/http/http-exchange.js';
import { openPool } from '../transports/http/http-pool.js';
import { proxyOf, trustedAuthorities } from '../transports/http/proxy.js';
import { loadUndici } from '../transports/http/undici.js';
import { documentTooLarge, lateAnswer, refusal } from './identity-errors.js';

const documentBytesMax = 64 * 1024;
const requestMsMax = 10_000;

interface OAuthRequest {
  readonly url: string;
  readonly method: 'GET' | 'POST';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly timeoutMs?: number;
}

export interface OAuthAnswer {
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly body: Buffer;
}

export type OAuthHttp = (request: OAuthRequest) => Promise<OAuthAnswer>;

export interface OAuthHttpOptions {
  readonly server: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Written by the operator, like `issuer`. */
  readonly url: string;
  readonly issuer?: string | undefined;
  /** Names the proxy and the certificate authorities. */
  readonly env?: Environment | undefined;
}

export function createOAuthHttp(options: OAuthHttpOptions): OAuthHttp {
  const { server, clock, random, url: own, issuer = own } = options;
  const trusted = new Set([own, issuer].filter((text) => URL.canParse(text)).map((text) => new URL(text).origin));
  const named = URL.canParse(own) && isLoopback(new URL(own).hostname) ? 'public-or-loopback' : 'public';
  return async (request) => {
    const origin = URL.canParse(request.url) ? new URL(request.url).origin : '';
    const policy = trusted.has(origin) ? 'any' : named;
    const url = checkUrl(request.url, policy, server);
    if (url instanceof HostError) throw url;
    if (url.protocol !== 'https:' && !isLoopback(url.hostname))
      throw refusal(
        server,
        'address_refused',
        'an address of its authorization is not https',
        'http is used on loopback only; ask the operator of the server for https',
      );
    url.hash = '';
    await loadUndici();
    const { env = {} } = options;
    // A proxy resolves names itself, so only literal addresses are checked here (`checkUrl`).
    const dial = proxyOf(url, env)
      ? {}
      : { dial: guardedDial({ policy, server, authorities: trustedAuthorities(env) }) };
    const dispatcher = openPool({ server, url: url.href }, { clock, random, env, ...dial }, 1);
    try {
      return await exchange(request, url, dispatcher, options);
    } finally {
      void dispatcher.destroy();
    }
  };
}

type Pool = ReturnType<typeof openPool>;

function exchange(request: OAuthRequest, url: URL, dispatcher: Pool, options: OAuthHttpOptions): Promise<OAuthAnswer> {
  const { server, clock } = options;
  const { method, body = null } = request;
  const named = {
    accept: 'application/json',
    'user-agent': 'hostler',
    ...request.headers,
    'accept-encoding': 'identity',
  };
  const headers = Object.entries(named).flat();
  return new Promise((resolve, reject) => {
    const received = new ByteBuffer();
    let head: Pick<OAuthAnswer, 'status' | 'headers'> | undefined;
    let isStarted = false;
    const settle = (run: () => void) => {
      cancel();
      run();
    };
    const sink: ExchangeSink = {
      started() {
        isStarted = true;
      },
      head(status, answered) {
        head = { status, headers: answered };
        return undefined;
      },
      data(chunk) {
        if (received.length + chunk.length > documentBytesMax) return documentTooLarge(server, documentBytesMax);
        received.add(chunk);
        return undefined;
      },
      end: () =>
        settle(() => resolve({ status: head?.status ?? 0, headers: head?.headers ?? {}, body: received.take() })),
      failed: (error) => settle(() => reject(error)),
      released() {},
    };
    const sent = new HttpExchange({ server, dispatcher, url, method, headers, body, followsRedirects: false }, sink);
    const leave = () =>
      settle(() => {
        sent.abort();
        reject(lateAnswer(server, isStarted));
      });
    const cancel = clock.at(clock.nowMs() + (request.timeoutMs ?? requestMsMax), leave);
    sent.start();
  });
}
