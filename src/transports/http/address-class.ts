/**
 * What kind of place an IP address is. Everything not known to be public is something else: in IPv6 only 2000::/3 is
 * handed out at all, and addresses that carry an IPv4 address inside are what that address is.
 */
import { BlockList, isIPv4, isIPv6 } from 'node:net';

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
  // 168.63.129.16 is a cloud's host agent on an address that looks public.
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
  // 2001::/23 holds Teredo and the identifiers, 2002::/16 is 6to4: tunnels into whatever they name.
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
/** Made when an address is first asked about: nobody waits for them who reaches no server by one. */
let ipv4Lists: Lists | undefined;
let ipv6Lists: Lists | undefined;

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

/** The eight groups of a valid IPv6 address. */
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
