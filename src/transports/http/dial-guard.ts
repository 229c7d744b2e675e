/**
 * Decides which addresses may be dialled. The operator may configure any address (`any`). A URL sent by a server may lead only
 * to the public internet (`public`), never to a metadata service or a local device. If the server itself is on this machine, its
 * URLs may also lead to this machine (`public-or-loopback`).
 * Not here: same-origin rules for redirects (http-exchange.ts).
 * Invariant: the checked address is the dialled address. Names are checked inside the lookup of the connection, so DNS
 * rebinding has no effect. Literal addresses never reach a lookup and are checked before the dial.
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { BlockList, isIP, isIPv4, isIPv6, type LookupFunction } from 'node:net';
import type { SecureContext } from 'node:tls';
import type { buildConnector } from 'undici';
import { HostError } from '../../kernel/errors.js';
import { undici } from './undici.js';

export type DialPolicy = 'any' | 'public' | 'public-or-loopback';
export type Dial = buildConnector.connector;

/** Returns all addresses of a name, like `dns.lookup` with `all`. */
type Resolve = (
  hostname: string,
  done: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

const systemResolve: Resolve = (hostname, done) => systemLookup(hostname, { all: true, verbatim: true }, done);

const connectTimeoutMsDefault = 10_000;

interface DialOptions {
  readonly policy: DialPolicy;
  readonly server: string;
  readonly resolve?: Resolve;
  readonly connectTimeoutMs?: number;
  /** Certificates to trust in addition to those of the system. */
  readonly ca?: string;
  /** All trusted certificates, instead of those of the system. */
  readonly authorities?: SecureContext | undefined;
}

export function guardedDial(options: DialOptions): Dial {
  const { buildConnector: connector } = undici();
  const base = {
    allowH2: false,
    timeout: options.connectTimeoutMs ?? connectTimeoutMsDefault,
    ...(options.ca === undefined ? {} : { ca: options.ca }),
    ...(options.authorities === undefined ? {} : { secureContext: options.authorities }),
  };
  if (options.policy === 'any' && !options.resolve) return connector(base as buildConnector.BuildOptions);
  const { policy, server } = options;
  const check = (address: string) => (policy === 'any' ? undefined : refusal(address, policy, server));
  const lookup = checkedLookup(options.resolve ?? systemResolve, check);
  const connect = connector({ ...base, lookup } as buildConnector.BuildOptions);
  return (target, done) => {
    const literal = target.hostname.replace(/^\[|\]$/g, '');
    const refused = isIP(literal) === 0 ? undefined : check(literal);
    if (refused) done(refused, null);
    else connect(target, done);
  };
}

function checkedLookup(resolve: Resolve, check: (address: string) => HostError | undefined): LookupFunction {
  return (hostname, options, done) => {
    resolve(hostname, (error, addresses) => {
      if (error) return done(error, '', 0);
      // One private address is enough to refuse the name.
      for (const { address } of addresses) {
        const refused = check(address);
        if (refused) return done(refused as NodeJS.ErrnoException, '', 0);
      }
      const first = addresses[0];
      if (!first) return done(Object.assign(new Error('no address'), { code: 'ENOTFOUND' }), '', 0);
      if (options.all) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
}

function refusal(address: string, policy: DialPolicy, server: string): HostError | undefined {
  const kind = addressClass(address);
  if (kind === 'public' || (kind === 'loopback' && policy === 'public-or-loopback')) return undefined;
  return new HostError('denied', `server '${server}' sent a URL that leads to a ${kind} address; it was not dialled`, {
    server,
    reason: 'address_refused',
    execution: 'not_executed',
    hint: 'if the address is right, write the URL into the configuration of the server',
  });
}

/** Returns the URL, or the error if it cannot be used. Checks literal addresses; names are checked at the dial. */
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
  if (policy !== 'any' && isIP(literal) !== 0) return refusal(literal, policy, server) ?? url;
  return url;
}

type AddressClass =
  | 'public'
  | 'loopback'
  | 'private'
  | 'link-local'
  | 'shared'
  | 'metadata'
  | 'multicast'
  | 'unspecified'
  | 'reserved';

const IPV4: ReadonlyArray<readonly [AddressClass, ReadonlyArray<string>]> = [
  ['loopback', ['127.0.0.0/8']],
  ['unspecified', ['0.0.0.0/8']],
  // 168.63.129.16 is the host agent of Azure. Its address looks public.
  ['metadata', ['169.254.169.254/32', '169.254.170.2/32', '100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32']],
  ['private', ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16']],
  ['link-local', ['169.254.0.0/16']],
  ['shared', ['100.64.0.0/10']],
  ['multicast', ['224.0.0.0/4']],
  [
    'reserved',
    [
      '192.0.0.0/24',
      '192.0.2.0/24',
      '192.88.99.0/24',
      '198.18.0.0/15',
      '198.51.100.0/24',
      '203.0.113.0/24',
      '240.0.0.0/4',
    ],
  ],
];

const IPV6: ReadonlyArray<readonly [AddressClass, ReadonlyArray<string>]> = [
  ['loopback', ['::1/128']],
  ['unspecified', ['::/128']],
  ['metadata', ['fd00:ec2::254/128', 'fd20:ce::254/128']],
  ['private', ['fc00::/7', 'fec0::/10']],
  ['link-local', ['fe80::/10']],
  ['multicast', ['ff00::/8']],
  // 2001::/23 includes Teredo, and 2002::/16 is 6to4. Both tunnel to any IPv4 address.
  ['reserved', ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']],
];

const lists = (table: typeof IPV4, family: 'ipv4' | 'ipv6') =>
  table.map(([kind, nets]) => {
    const list = new BlockList();
    for (const net of nets) {
      const [address = '', prefix = ''] = net.split('/');
      list.addSubnet(address, Number(prefix), family);
    }
    return [kind, list] as const;
  });
type Lists = ReturnType<typeof lists>;
/** Built lazily, for the first checked address. */
let ipv4Lists: Lists | undefined;
let ipv6Lists: Lists | undefined;

/**
 * Treats an address as public only if it is known to be: in IPv6 only 2000::/3 is assigned. An address that embeds an IPv4
 * address has the class of that address.
 */
export function addressClass(address: string): AddressClass {
  const bare = address.split('%')[0] ?? '';
  if (isIPv4(bare)) {
    ipv4Lists ??= lists(IPV4, 'ipv4');
    return find(ipv4Lists, bare, 'ipv4') ?? 'public';
  }
  if (!isIPv6(bare)) return 'reserved';
  const groups = ipv6Groups(bare);
  const embedded = embeddedIpv4(groups);
  if (embedded !== undefined) return addressClass(embedded);
  ipv6Lists ??= lists(IPV6, 'ipv6');
  const listed = find(ipv6Lists, bare, 'ipv6');
  if (listed) return listed;
  return ((groups[0] ?? 0) & 0xe000) === 0x2000 ? 'public' : 'reserved';
}

function find(table: Lists, address: string, family: 'ipv4' | 'ipv6'): AddressClass | undefined {
  return table.find(([, list]) => list.check(address, family))?.[0];
}

/** Mapped (::ffff:0:0/96), translated (::ffff:0:0:0/96), compatible (::/96) and NAT64 (64:ff9b::/96) addresses. */
function embeddedIpv4(groups: number[]): string | undefined {
  const [a, b, c, d, e, f, high = 0, low = 0] = groups;
  const zeroTo = (...parts: Array<number | undefined>) => parts.every((part) => part === 0);
  const mapped = zeroTo(a, b, c, d, e) && f === 0xffff;
  const translated = zeroTo(a, b, c, d, f) && e === 0xffff;
  const compatible = zeroTo(a, b, c, d, e, f) && (high !== 0 || low > 1);
  const nat64 = a === 0x64 && b === 0xff9b && zeroTo(c, d, e, f);
  if (!mapped && !translated && !compatible && !nat64) return undefined;
  return `${high >> 8}.${high & 0xff}.${low >> 8}.${low & 0xff}`;
}

function ipv6Groups(address: string): number[] {
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  const hex = dotted
    ? `${dotted[1]}${((Number(dotted[2]) << 8) | Number(dotted[3])).toString(16)}:${((Number(dotted[4]) << 8) | Number(dotted[5])).toString(16)}`
    : address;
  const [head = '', tail] = hex.split('::');
  const parse = (part: string) => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16)));
  const front = parse(head);
  if (tail === undefined) return front;
  const back = parse(tail);
  return [...front, ...new Array<number>(8 - front.length - back.length).fill(0), ...back];
}
