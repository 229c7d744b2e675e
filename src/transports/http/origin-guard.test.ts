import { expect, test } from 'vitest';
import { originGuard } from './origin-guard.js';

// The whole matrix is test/gateway/http-origin.test.ts, over HTTP.
const guard = originGuard({
  hosts: ['gw.example', 'Pinned.example:9000', '[fd00::1]'],
  origins: ['https://page.example'],
});

test.each([
  ['localhost', undefined, true],
  ['LOCALHOST:8383', 'http://127.0.0.1:1', true],
  ['[fd00::1]:8383', 'http://[fd00::1]', true],
  ['pinned.example:9000', undefined, true],
  ['pinned.example', undefined, false],
  ['localhost', 'http://gw.example', false],
  ['gw.example', 'http://localhost', false],
  ['gw.example', 'https://page.example', true],
  ['evil.example', 'https://page.example', false],
  ['localhost', 'null', false],
  [undefined, undefined, false],
])('Host %s with Origin %s: %s', (host, origin, isAllowed) => {
  expect(guard(host, origin)).toBe(isAllowed);
});

test('an allowed origin allows no other', () => {
  expect(guard('localhost', undefined)).toBe(true);
  expect(guard('localhost', undefined)).toBe(true);
  expect(guard('localhost', 'https://evil.example')).toBe(false);
  expect(guard('localhost.evil.example', undefined)).toBe(false);
});
