import { expect, test } from 'vitest';
import { childEnvironment, RUN_MARKER, runMark } from './environment.js';

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

test('a variable named like an object member is only a variable', () => {
  const declared = JSON.parse('{"__proto__":"x","constructor":"y"}') as Record<string, string>;
  const env = childEnvironment({}, declared, mark);
  expect(Object.keys(env).sort()).toEqual([RUN_MARKER, '__proto__', 'constructor'].sort());
});
