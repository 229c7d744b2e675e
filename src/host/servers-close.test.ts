import { expect, test } from 'vitest';
import { serverMarks } from '../catalog/store/server-marks.js';
import { parseServerDefinition } from '../config/server-definition.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Servers } from './servers.js';
import type { Supervised } from './supervise.js';

test('a server whose end fails, at once or later, is reported when all others have ended', async () => {
  const ended: string[] = [];
  const ends: Record<string, () => Promise<void>> = {
    a: () => {
      throw new Error('at once');
    },
    b: () => Promise.reject(new Error('later')),
    c: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      ended.push('c');
    },
  };
  const servers = new Servers({
    clock: new FakeClock(),
    supervise: ({ name }) => ({ supervisor: { dispose: ends[name] }, auth: undefined }) as unknown as Supervised,
    onCircuit: () => () => {},
    forget: () => {},
    marks: serverMarks(),
    restore: () => {},
  });
  for (const name of Object.keys(ends)) servers.declare(parseServerDefinition(name, { command: name }, true), () => {});
  await expect(servers.close()).rejects.toThrow('at once');
  expect(ended).toEqual(['c']);
});
