/**
 * HTTP requests to authorization servers and for their metadata. Connections use the pools of transports/http, so proxy and
 * certificate settings are the same as for servers.
 * Invariants: https, or http on loopback. A URL that a server named leads to the public internet, to an origin that the operator
 * wrote, or to loopback if the server has a loopback address. No redirect is followed here. Time and size are bounded.
 */
import { isLoopback, isSecure } from '../config/values.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { Environment } from '../transports/environment.js';
import { checkUrl, guardedDial } from '../transports/http/dial-guard.js';
import { openPool } from '../transports/http/http-pool.js';
import { proxyOf, trustedAuthorities } from '../transports/http/proxy.js';
import { loadUndici } from '../transports/http/undici.js';
import { exchangeWhole, type WholeAnswer } from '../transports/http/whole-exchange.js';
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

export type OAuthHttp = (request: OAuthRequest) => Promise<WholeAnswer>;

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
    if (!isSecure(url))
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
    const headers = { accept: 'application/json', 'user-agent': 'hostler', ...request.headers };
    try {
      return await exchangeWhole({
        ...{ server, dispatcher, url, clock, method: request.method, body: request.body ?? null },
        headers: Object.entries({ ...headers, 'accept-encoding': 'identity' }).flat(),
        followsRedirects: false,
        bytesMax: documentBytesMax,
        deadlineAtMs: clock.nowMs() + (request.timeoutMs ?? requestMsMax),
        tooLarge: () => documentTooLarge(server, documentBytesMax),
        late: (isSent) => lateAnswer(server, isSent),
      });
    } finally {
      void dispatcher.destroy();
    }
  };
}
