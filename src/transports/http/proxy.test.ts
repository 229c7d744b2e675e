import { describe, expect, test } from 'vitest';
import { proxyHeaders, proxyOf } from './proxy.js';

const proxy = 'http://proxy:3128';
const hostOf = (url: string, env: Record<string, string>) => proxyOf(new URL(url), env)?.host;

describe('the proxy of a URL', () => {
  test.each([
    ['https://a.example', { HTTPS_PROXY: proxy }, 'proxy:3128'],
    ['https://a.example', { https_proxy: proxy, HTTPS_PROXY: 'http://other' }, 'proxy:3128'],
    ['https://a.example', { HTTP_PROXY: proxy }, undefined],
    ['http://a.example', { HTTP_PROXY: proxy }, 'proxy:3128'],
    ['http://a.example', { HTTPS_PROXY: proxy }, undefined],
    ['http://a.example', { ALL_PROXY: 'proxy:3128' }, 'proxy:3128'],
    ['https://a.example', {}, undefined],
    ['http://localhost:8080', { HTTP_PROXY: proxy }, undefined],
    ['http://127.0.0.1', { HTTP_PROXY: proxy }, undefined],
    ['http://[::1]:80', { HTTP_PROXY: proxy }, undefined],
  ])('%s with %j: %s', (url, env, host) => {
    expect(hostOf(url, env)).toBe(host);
  });

  test.each([
    ['*', true],
    ['example.com', true],
    ['.example.com', true],
    ['*.example.com', true],
    ['other, a.example.com', true],
    ['A.Example.COM', true],
    ['a.example.com:8443', true],
    ['a.example.com:443', false],
    ['ample.com', false],
    ['b.example.com', false],
    ['', false],
  ])('with NO_PROXY="%s", a.example.com:8443 is reached without the proxy: %s', (list, isDirect) => {
    expect(hostOf('https://a.example.com:8443', { HTTPS_PROXY: proxy, NO_PROXY: list }) === undefined).toBe(isDirect);
  });

  test('an address that is not an HTTP URL is reported without its password', () => {
    expect(() => hostOf('https://a.example', { HTTPS_PROXY: 'socks5://user:p4ss@proxy' })).toThrow(
      'the proxy in HTTPS_PROXY or ALL_PROXY is not an http:// or https:// address',
    );
  });
});

test('user name and password are sent in one header', () => {
  expect(proxyHeaders(new URL('http://us%40er:pa%3Ass@proxy'))).toEqual([
    'proxy-authorization',
    `Basic ${Buffer.from('us@er:pa:ss').toString('base64')}`,
  ]);
  expect(proxyHeaders(new URL('http://proxy'))).toEqual([]);
});
