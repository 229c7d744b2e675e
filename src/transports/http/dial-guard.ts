/**
 * Which addresses may be dialled. The operator may name any (`any`); a URL that a server named may only lead to the
 * public internet (`public`), so that no answer of a server can make us call the metadata service or the office printer.
 *
 * Invariant: the address that is checked is the address that is dialled. Names are judged after resolution, inside the
 * lookup of the connection itself, so a name that resolves differently the second time gains nothing. Literal addresses
 * never reach a lookup and are judged before the dial.
 * Not here: same-origin rules for redirects (http-exchange.ts).
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import type { buildConnector } from 'undici';
import { HostError } from '../../kernel/errors.js';
import { addressClass } from './address-class.js';
import { undici } from './undici.js';

type DialPolicy = 'any' | 'public';
/** How undici opens one connection. */
export type Dial = buildConnector.connector;

/** All addresses of a name, as `dns.lookup` with `all` gives them. */
type Resolve = (
  hostname: string,
  done: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

const systemResolve: Resolve = (hostname, done) => systemLookup(hostname, { all: true, verbatim: true }, done);

const connectTimeoutMsDefault = 10_000;

interface DialOptions {
  readonly policy: DialPolicy;
  /** Whose connections they are. */
  readonly server: string;
  readonly resolve?: Resolve;
  readonly connectTimeoutMs?: number;
  /** Certificates to trust beside the system's, for servers of the operator's own. */
  readonly ca?: string;
}

export function guardedDial(options: DialOptions): Dial {
  const { buildConnector: connector } = undici();
  const base = {
    allowH2: false,
    timeout: options.connectTimeoutMs ?? connectTimeoutMsDefault,
    ...(options.ca === undefined ? {} : { ca: options.ca }),
  };
  if (options.policy === 'any' && !options.resolve) return connector(base as buildConnector.BuildOptions);
  const judge = options.policy === 'public' ? (address: string) => refusal(address, options.server) : () => undefined;
  const lookup = judgingLookup(options.resolve ?? systemResolve, judge);
  const connect = connector({ ...base, lookup } as buildConnector.BuildOptions);
  return (target, done) => {
    const literal = target.hostname.replace(/^\[|\]$/g, '');
    const refused = isIP(literal) === 0 ? undefined : judge(literal);
    if (refused) done(refused, null);
    else connect(target, done);
  };
}

function judgingLookup(resolve: Resolve, judge: (address: string) => HostError | undefined): LookupFunction {
  return (hostname, options, done) => {
    resolve(hostname, (error, addresses) => {
      if (error) return done(error, '', 0);
      // One private address among public ones is enough: a name that also leads inside is not a public name.
      for (const { address } of addresses) {
        const refused = judge(address);
        if (refused) return done(refused as NodeJS.ErrnoException, '', 0);
      }
      const first = addresses[0];
      if (!first) return done(Object.assign(new Error('no address'), { code: 'ENOTFOUND' }), '', 0);
      if (options.all) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
}

function refusal(address: string, server: string): HostError | undefined {
  const kind = addressClass(address);
  if (kind === 'public') return undefined;
  return new HostError('denied', `server '${server}' named a URL that leads to a ${kind} address; it was not dialled`, {
    server,
    reason: 'address_refused',
    execution: 'not_executed',
    hint: 'if the address is meant, write the URL in the configuration of the server yourself',
  });
}

/**
 * The URL as an object, or why it cannot be used. Literal addresses are judged here too, so that a URL which can never
 * be dialled is refused where it is read; names can only be judged when they are dialled.
 */
export function checkUrl(text: string, policy: DialPolicy, server: string): URL | HostError {
  const wrong = (what: string, reason: string) =>
    new HostError(policy === 'any' ? 'invalid_spec' : 'denied', `server '${server}': url ${what}`, {
      server,
      field: 'url',
      reason,
      execution: 'not_executed',
    });
  if (!URL.canParse(text)) return wrong('is not a URL', 'url_malformed');
  const url = new URL(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return wrong('must start with http:// or https://', 'url_scheme');
  }
  if (url.username !== '' || url.password !== '') {
    return wrong('must not contain a user name or password; use headers', 'url_userinfo');
  }
  const literal = url.hostname.replace(/^\[|\]$/g, '');
  if (policy === 'public' && isIP(literal) !== 0) return refusal(literal, server) ?? url;
  return url;
}
