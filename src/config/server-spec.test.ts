import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { parseServerSpec } from './server-spec.js';

test('a command and a URL each make a server, with defaults filled in and frozen', () => {
  const stdio = parseServerSpec({ name: 'files', command: 'node', args: ['server.js'] });
  expect(stdio).toEqual({
    name: 'files',
    command: 'node',
    args: ['server.js'],
    env: {},
    sandbox: 'group',
    readablePaths: [],
    writablePaths: [],
  });
  expect(Object.isFrozen(stdio)).toBe(true);
  expect('args' in stdio && Object.isFrozen(stdio.args) && Object.isFrozen(stdio.env)).toBe(true);
  expect(parseServerSpec({ name: 'web', url: 'https://example.com/mcp' })).toMatchObject({
    transport: 'auto',
    headers: {},
  });
});

describe('a bad definition is named by its field', () => {
  test.each([
    [undefined, ''],
    [{}, ''],
    [{ name: 'x' }, ''],
    [{ name: 'x', command: 'a', url: 'http://b' }, ''],
    [{ name: '', command: 'a' }, 'name'],
    [{ name: '../x', command: 'a' }, 'name'],
    [{ name: 'x', command: '' }, 'command'],
    [{ name: 'x', command: 'a\0b' }, 'command'],
    [{ name: 'x', command: 'a', args: [1] }, 'args.0'],
    [{ name: 'x', command: 'a', env: { 'A=B': '1' } }, 'env.A=B'],
    [{ name: 'x', command: 'a', env: { A: 1 } }, 'env.A'],
    [{ name: 'x', command: 'a', sandbox: 'none' }, 'sandbox'],
    [{ name: 'x', command: 'a', allowed_tools: [] }, 'allowed_tools'],
    [{ name: 'x', url: 'file:///etc/passwd' }, 'url'],
    [{ name: 'x', url: 'http://user:pw@host/' }, 'url'],
    [{ name: 'x', url: 'http://h', headers: { 'A B': 'x' } }, 'headers.A B'],
    [{ name: 'x', url: 'http://h', headers: { A: 'x\r\nB: y' } }, 'headers.A'],
  ])('%j', (input, field) => {
    let error: unknown;
    try {
      parseServerSpec(input);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(HostError);
    expect(error).toMatchObject({ code: 'invalid_spec', details: { field } });
  });
});

test.each([
  [{ comand: 'node' }, "needs a command (stdio) or a url (HTTP): write 'command' instead of 'comand'"],
  [{ uri: 'https://example.com' }, "needs a command (stdio) or a url (HTTP): write 'url' instead of 'uri'"],
  [{ args: ['x'] }, 'needs a command (stdio) or a url (HTTP)'],
  [{ command: 'node', url: 'https://example.com' }, 'has a command (stdio) and a url (HTTP): keep one of them'],
])('the error for an entry without a command or URL names the mistake: %j', (entry, message) => {
  expect(() => parseServerSpec({ name: 'a', ...entry })).toThrow(message);
});
