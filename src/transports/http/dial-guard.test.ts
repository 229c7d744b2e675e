import { expect, test } from 'vitest';
import { isHostError } from '../../kernel/errors.js';

import { addressClass, checkUrl } from './dial-guard.js';

test.each([
  ['127.0.0.1', 'loopback'],
  ['127.255.255.254', 'loopback'],
  ['0.0.0.0', 'unspecified'],
  ['0.1.2.3', 'unspecified'],
  ['10.0.0.1', 'private'],
  ['172.15.255.255', 'public'],
  ['172.16.0.1', 'private'],
  ['172.31.255.255', 'private'],
  ['172.32.0.0', 'public'],
  ['192.168.1.1', 'private'],
  ['169.254.169.254', 'metadata'],
  ['169.254.1.1', 'link-local'],
  ['100.64.0.1', 'shared'],
  ['100.100.100.200', 'metadata'],
  ['100.128.0.1', 'public'],
  ['168.63.129.16', 'metadata'],
  ['192.0.0.192', 'metadata'],
  ['192.0.2.1', 'reserved'],
  ['198.18.0.1', 'reserved'],
  ['224.0.0.1', 'multicast'],
  ['255.255.255.255', 'reserved'],
  ['8.8.8.8', 'public'],
  ['::', 'unspecified'],
  ['::1', 'loopback'],
  ['0:0:0:0:0:0:0:1', 'loopback'],
  ['::ffff:127.0.0.1', 'loopback'],
  ['::ffff:7f00:1', 'loopback'],
  ['::ffff:8.8.8.8', 'public'],
  ['::ffff:0:10.0.0.1', 'private'],
  ['::127.0.0.1', 'loopback'],
  ['::a00:1', 'private'],
  ['64:ff9b::10.0.0.1', 'private'],
  ['64:ff9b::a9fe:a9fe', 'metadata'],
  ['64:ff9b::8.8.8.8', 'public'],
  ['64:ff9b:1::1', 'reserved'],
  ['2002:7f00:1::', 'reserved'],
  ['2001:0:1::1', 'reserved'],
  ['2001:db8::1', 'reserved'],
  ['fc00::1', 'private'],
  ['fd00:ec2::254', 'metadata'],
  ['fe80::1', 'link-local'],
  ['fe80::1%eth0', 'link-local'],
  ['fec0::1', 'private'],
  ['ff02::1', 'multicast'],
  ['100::1', 'reserved'],
  ['2606:4700::1111', 'public'],
  ['2a00:1450::1', 'public'],
  ['not an address', 'reserved'],
])('%s is %s', (address, kind) => {
  expect(addressClass(address)).toBe(kind);
});

test.each([
  ['ftp://example.com/', 'url_scheme'],
  ['file:///etc/passwd', 'url_scheme'],
  ['javascript:alert(1)', 'url_scheme'],
  ['example.com/mcp', 'url_malformed'],
  ['http://', 'url_malformed'],
  ['http://user:secret@example.com/', 'url_userinfo'],
  ['http://10.0.0.1\\@example.com/', 'address_refused'],
  ['http://[::1]/', 'address_refused'],
])('a server may not send the URL %s', (text, reason) => {
  const checked = checkUrl(text, 'public', 'evil');
  expect(isHostError(checked) && checked.details.reason).toBe(reason);
});

test('the operator may use any address, but not one with credentials', () => {
  expect(checkUrl('http://127.0.0.1:3000/mcp', 'any', 'own')).toBeInstanceOf(URL);
  expect(checkUrl('http://u:p@127.0.0.1/', 'any', 'own')).toMatchObject({
    code: 'invalid_spec',
    details: { server: 'own', field: 'url' },
  });
});
