import { expect, test } from 'vitest';
import { stateFolder } from './folders.js';

test.each([
  [{ HOSTLER_DATA_DIR: '/data', XDG_STATE_HOME: '/state', HOME: '/h' }, '/data'],
  [{ XDG_STATE_HOME: '/state', HOME: '/h' }, '/state/hostler'],
  [{ XDG_STATE_HOME: 'relative', HOME: '/h' }, '/h/.local/state/hostler'],
  [{ HOME: '/h' }, '/h/.local/state/hostler'],
  [{}, undefined],
])('%j keeps its state in %s', (env, folder) => {
  expect(stateFolder(env)).toBe(folder);
});
