import { expect, test } from 'vitest';
import type { HostEventOf } from '../../host/host-events.js';
import { eventLine } from './event-line.js';

const freeze = (cause: HostEventOf<'freeze'>['cause']): HostEventOf<'freeze'> => ({
  ...{ kind: 'freeze', atMs: 0, server: 'a', run: 1, cause, servers: ['a'], forMs: 30_000, untilMs: 30_000 },
});

test.each([
  ['correlated', 'many servers failed together'],
  ['suspended', 'Hostler itself was suspended'],
] as const)('the line of a freeze names its cause: %s', (cause, words) => {
  expect(eventLine(freeze(cause))?.text).toBe(`${words}; failures of servers do not count for 30s`);
});

test.each([
  [{ id: 'embedder', role: undefined }, 'the operator'],
  [{ id: 'ann', role: 'guest' }, 'ann (guest)'],
  [{ id: 'bob', role: undefined }, 'bob'],
])('the line of a denial names the caller in the words of `hostler why`', (caller, words) => {
  const principal = { ...caller, scopes: [] };
  const line = eventLine({
    kind: 'denied',
    atMs: 0,
    server: 'a',
    tool: 'x',
    requestId: undefined,
    action: 'call',
    principal,
  });
  expect(line?.text).toBe(`call of x denied for ${words}`);
});
