import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { isNewerVersion, parseHello, parseStopping, stoppingLine, variableNames } from './hello.js';
import { endReasons } from './relay-state.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-hello-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('R3 the hello has the variables that the configuration names, in any of their forms, and PATH', () => {
  const file = path.join(folder, 'hostler.json');
  const written = ['env:A', 'B', 'C:-x', 'env:D:-y', 'file:/e', 'A'].map((inside) =>
    `"$\{${inside}}"`.replace('\\', ''),
  );
  writeFileSync(file, `{ "x": [${written.join(', ')}] `);
  expect(variableNames(file)).toEqual(['PATH', 'A', 'B', 'C', 'D']);
  expect(variableNames(path.join(folder, 'missing'))).toEqual(['PATH']);
});

test('R3 the hello has the variables that files of clients name', () => {
  const file = path.join(folder, 'client.json');
  const server = {
    env: { a: '{env:A}', b: '$B', c: '$env:C', d: '%D%', plain: 'x$NOT', percent: '5% of %' },
    env_vars: ['E', 'F'],
    env_keys: ['G'],
    bearer_token_env_var: 'H',
    env_http_headers: { 'X-One': 'I', 'X-Two': 'J' },
  };
  for (const space of [0, 2]) {
    writeFileSync(file, JSON.stringify({ mcpServers: { one: server } }, null, space));
    expect([...variableNames(file)].sort()).toEqual([...'ABCDEFGHIJ', 'PATH']);
  }
});

test('R3 the hello has no variable that only the history of a client names', () => {
  const file = path.join(folder, 'history.json');
  const named = (name: string) => `$\{${name}}`.replace('\\', '');
  const config = { projects: { chat: [named('FOREIGN')] }, mcpServers: { one: { command: named('OWN') } } };
  for (const mark of ['', '\ufeff']) {
    writeFileSync(file, mark + JSON.stringify(config));
    expect(variableNames(file)).toEqual(['PATH', 'OWN']);
  }
});

test('R2 the last line of a host says why it ends', () => {
  for (const reason of endReasons) expect(parseStopping(stoppingLine(reason).trimEnd())).toBe(reason);
  for (const line of ['{"hostler":"stopping","reason":"other"}', '{"jsonrpc":"2.0"}'])
    expect(parseStopping(line)).toBeUndefined();
});

test('R3 a hello is checked before it is used', () => {
  const hello = { hostler: 1, version: '1.0.0', client: 'abc', config: '/a', env: { A: 'x' }, options: {} };
  expect(parseHello(JSON.stringify(hello))).toEqual(hello);
  for (const wrong of [
    { client: '../x' },
    { client: '' },
    { env: { A: 1 } },
    { config: 7 },
    { hostler: 'x' },
    { options: null },
  ])
    expect(parseHello(JSON.stringify({ ...hello, ...wrong }))).toBeUndefined();
  expect(parseHello('{')).toBeUndefined();
});

test.each([
  ['0.2.0', '0.1.9', true],
  ['1.0.10', '1.0.9', true],
  ['0.1.0', '0.1.0', false],
  ['0.1.0-rc.1', '0.1.0', false],
  ['0.1.0', '', true],
  ['0.9.9', '1.0.0', false],
])('R3 %s is newer than %s: %s', (version, than, expected) => {
  expect(isNewerVersion(version, than)).toBe(expected);
});
