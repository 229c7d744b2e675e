import { expect, test } from 'vitest';
import { nearestName } from './nearest-name.js';

const known = ['config', 'data-dir', 'json', 'port', 'sandbox', 'show-key', 'stdio'];

test.each([
  ['sanbox', 'sandbox'],
  ['sandbxo', 'sandbox'],
  ['Sandbox', 'sandbox'],
  ['datadir', 'data-dir'],
  ['jsn', 'json'],
  ['prot', 'port'],
  ['showkey', 'show-key'],
  ['x', undefined],
  ['verbose', undefined],
  ['', undefined],
  ['s'.repeat(1_000_000), undefined],
])('for %s the nearest name is %s', (written, name) => {
  expect(nearestName(written, known)).toBe(name);
});

test('of two names the nearer one is chosen', () => {
  expect(nearestName('hosts', ['hosta', 'host', 'hosts'])).toBe('hosts');
});
