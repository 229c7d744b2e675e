import { expect, test } from 'vitest';
import { addressSecrets, BASELINE, childEnvironment, RUN_MARKER, runMark } from './environment.js';

const mark = runMark('abc', 3);

test('a child sees the baseline, declared variables and the marker, and nothing else', () => {
  const ambient = { PATH: '/bin', HOME: '/h', XDG_CACHE_HOME: '/c', AWS_SECRET_ACCESS_KEY: 's', NODE_OPTIONS: '--x' };
  expect({ ...childEnvironment(ambient, { API_KEY: 'k' }, mark) }).toEqual({
    PATH: '/bin',
    HOME: '/h',
    XDG_CACHE_HOME: '/c',
    API_KEY: 'k',
    [RUN_MARKER]: 'abc.3',
  });
});

test('a declared variable replaces the baseline, the marker replaces both', () => {
  const env = childEnvironment({ PATH: '/bin' }, { PATH: '/opt', [RUN_MARKER]: 'forged' }, mark);
  expect(env.PATH).toBe('/opt');
  expect(env[RUN_MARKER]).toBe('abc.3');
});

test('a variable named like an object member is an ordinary variable', () => {
  const declared = JSON.parse('{"__proto__":"x","constructor":"y"}') as Record<string, string>;
  const env = childEnvironment({}, declared, mark);
  expect(Object.keys(env).sort()).toEqual([RUN_MARKER, '__proto__', 'constructor'].sort());
});

test('variables for proxies, certificate authorities and the registry reach every child, and null removes a variable', () => {
  const names = [
    'HTTPS_PROXY',
    'https_proxy',
    'NO_PROXY',
    'NODE_EXTRA_CA_CERTS',
    'SSL_CERT_FILE',
    'npm_config_registry',
  ];
  const ambient = Object.fromEntries(names.map((name) => [name, 'x']));
  expect(Object.keys(childEnvironment({ ...ambient, OTHER: 'x' }, {}, mark))).toEqual([...names, RUN_MARKER]);
  expect(childEnvironment(ambient, { HTTPS_PROXY: null }, mark).HTTPS_PROXY).toBeUndefined();
  expect([...BASELINE]).toContain('http_proxy');
});

test.each([
  ['http://user:p%40ss@proxy:3128', ['p%40ss', 'p@ss']],
  ['user:secret@proxy:3128', ['secret', 'secret']],
  ['http://token@proxy', ['token', 'token']],
  ['http://proxy:3128/a:b@c', []],
  ['http://user:%zz@proxy', ['%zz', '%zz']],
])('the redacted values of %s', (address, secrets) => {
  expect(addressSecrets({ HTTPS_PROXY: address, OTHER: 'http://a:b@c' })).toEqual(secrets);
});
