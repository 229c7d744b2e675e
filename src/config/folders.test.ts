import { expect, test } from 'vitest';
import { cacheFolder, configFolder, dataFolder, stateFolder } from './folders.js';

test.each([
  [{ HOSTLER_DATA_DIR: '/data', XDG_STATE_HOME: '/state', HOME: '/h' }, '/data'],
  [{ XDG_STATE_HOME: '/state', HOME: '/h' }, '/state/hostler'],
  [{ XDG_STATE_HOME: 'relative', HOME: '/h' }, '/h/.local/state/hostler'],
  [{ HOME: '/h' }, '/h/.local/state/hostler'],
  [{}, undefined],
])('with %j the state folder is %s', (env, folder) => {
  expect(stateFolder(env)).toBe(folder);
});

test.each([
  [{ HOSTLER_DATA_DIR: '/data', XDG_DATA_HOME: '/share', HOME: '/h' }, '/data'],
  [{ XDG_DATA_HOME: '/share', HOME: '/h' }, '/share/hostler'],
  [{ HOME: '/h' }, '/h/.local/share/hostler'],
  [{ XDG_DATA_HOME: 'relative' }, undefined],
])('with %j the data folder is %s', (env, folder) => {
  expect(dataFolder(env)).toBe(folder);
});

test.each([
  [{ XDG_CONFIG_HOME: '/etc/mine', HOME: '/h' }, '/etc/mine/hostler'],
  [{ HOME: '/h' }, '/h/.config/hostler'],
  [{}, undefined],
])('with %j the configuration folder is %s', (env, folder) => {
  expect(configFolder(env)).toBe(folder);
});

test.each([
  [{ HOSTLER_DATA_DIR: '/data', XDG_CACHE_HOME: '/cache', HOME: '/h' }, '/data/cache'],
  [{ HOSTLER_DATA_DIR: 'relative', XDG_CACHE_HOME: '/cache' }, '/cache/hostler'],
  [{ HOME: '/h' }, '/h/.cache/hostler'],
  [{}, undefined],
])('with %j the cache folder is %s', (env, folder) => {
  expect(cacheFolder(env)).toBe(folder);
});
