import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { hostConfigKeys } from '../../config/known-keys.js';
import { PlaceholderFiles } from '../../config/placeholders.js';
import { treatment } from '../../config/server-definition.js';
import { digestOfKey, partsOf } from './config-parts.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-parts-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const digests = (config: unknown): Record<string, string> =>
  Object.fromEntries(partsOf(config, new PlaceholderFiles(folder)).map(({ at, digest }) => [at.join('.'), digest]));
const server = (entry: unknown): string | undefined => digests({ mcpServers: { a: entry } })['mcpServers.a'];

const entry = { command: 'node', args: ['a.js', 'b'], env: { A: '1' }, cwd: '/x', timeouts: { call: '1s' } };

describe('E8 the part of a server has another digest when', () => {
  test.each([
    ['its command changes', { ...entry, command: 'nod' }],
    ['an argument changes', { ...entry, args: ['a.js', 'c'] }],
    ['arguments change places', { ...entry, args: ['b', 'a.js'] }],
    ['arguments are split in another way', { ...entry, args: ['a.js,b'] }],
    ['a variable changes', { ...entry, env: { A: '2' } }],
    ['a variable is added', { ...entry, env: { A: '1', NODE_OPTIONS: '--require=./x.cjs' } }],
    ['its folder changes', { ...entry, cwd: '/y' }],
    ['its folder is left out', { ...entry, cwd: undefined }],
    ['envFile is added', { ...entry, envFile: '.env' }],
    ['a sandbox is set', { ...entry, sandbox: 'standard' }],
    ['paths of the sandbox change', { ...entry, writablePaths: ['/'] }],
    ['headers are added', { ...entry, headers: { A: 'b' } }],
    ['a URL is added', { ...entry, url: 'https://example.com' }],
    ['a card is added, whose URL is fetched', { ...entry, card: `https://example.com/\${env:TOKEN}` }],
    ['its pins are switched off', { ...entry, pins: 'off' }],
    ['its annotations are trusted', { ...entry, trustAnnotations: true }],
    ['a key is added that nothing knows yet', { ...entry, hook: 'x' }],
    ['a value becomes a text', { ...entry, args: ['a.js', 'b'], env: { A: 1 } }],
  ])('%s', (_name, changed) => {
    expect(server(JSON.parse(JSON.stringify(changed)))).not.toBe(server(entry));
  });

  test('it has another name', () => {
    const both = digests({ mcpServers: { a: entry, b: entry } });
    expect(both['mcpServers.a']).not.toBe(both['mcpServers.b']);
  });
});

test('E8 the order of keys, and settings of how a server is treated, do not change its part', () => {
  const { command, args, env, cwd } = entry;
  const treated = Object.fromEntries(Object.keys(treatment.shape).map((key) => [key, 'anything']));
  for (const key of ['card', 'pins', 'trustAnnotations']) delete treated[key];
  expect(server({ cwd, env, args, command })).toBe(server(entry));
  expect(server({ ...treated, command, args, env, cwd })).toBe(server(entry));
});

test('E8 the digest covers a placeholder as written, and the content of the file that it names', () => {
  const file = path.join(folder, 'options');
  const of = (text: string) => server({ command: 'node', args: [text] });
  const missing = of(`\${file:options}`);
  writeFileSync(file, '--safe');
  const safe = of(`\${file:options}`);
  expect(of(`\${file:options}`)).toBe(safe);
  writeFileSync(file, '--require=./evil.cjs');
  expect(new Set([missing, safe, of(`\${file:options}`), of('--require=./evil.cjs'), of(`\${env:options}`)]).size).toBe(
    5,
  );
});

test('E8 the digest covers a file in a header by its path, so that the content can be rotated, and a file in a variable by its content too', () => {
  const file = path.join(folder, 'rotated');
  const of = (field: string) => server({ url: 'https://x', [field]: { A: `\${file:rotated}` } });
  writeFileSync(file, 'one');
  const before = [of('headers'), of('env')];
  writeFileSync(file, 'two');
  expect([of('headers') === before[0], of('env') === before[1]]).toEqual([true, false]);
});

test.each([
  ['auth.issuer', 'another content', (text: string) => ({ issuer: text })],
  ['auth.clientKey.kid', 'another content', (text: string) => ({ clientKey: { kid: text, pem: 'x' } })],
  ['auth.clientSecret', 'its path', (text: string) => ({ clientSecret: text })],
  ['auth.clientKey.pem', 'its path', (text: string) => ({ clientKey: { pem: text } })],
])('E8 the part of a file in %s changes with %s', (_field, by, authOf) => {
  const of = () => server({ url: 'https://x', auth: authOf(`\${file:idp}`) });
  writeFileSync(path.join(folder, 'idp'), 'https://one.example');
  const before = of();
  writeFileSync(path.join(folder, 'idp'), 'https://other.example');
  expect(of() !== before).toBe(by === 'another content');
});

test('E8 the digest covers the commands of secrets', () => {
  const of = (argv: string[]) => digests({ secrets: { exec: { vault: { argv } } } }).secrets;
  expect(of(['op', 'read', 'x'])).not.toBe(of(['op', 'read', 'y']));
});

test('E8 the digest covers the content of an envFile', () => {
  const file = path.join(folder, '.env');
  writeFileSync(file, 'A=1');
  const before = server({ command: 'node', envFile: '.env' });
  writeFileSync(file, 'NODE_OPTIONS=--require=./evil.cjs');
  expect(server({ command: 'node', envFile: '.env' })).not.toBe(before);
});

test('settings that admit clients are parts; settings that limit or name are not', () => {
  const limits = {
    $schema: '',
    roles: {},
    unlistedRole: 'deny',
    budgets: {},
    groups: {},
    log: {},
    telemetry: {},
    idleExit: 0,
  };
  expect(digests(limits)).toEqual({});
  const all = {
    mcpServers: { a: {} },
    keys: { ann: {} },
    listen: {},
    broker: {},
    identity: {},
    secrets: {},
    later: 1,
    ...limits,
  };
  const covered = ['broker', 'identity', 'keys.ann', 'later', 'listen', 'mcpServers.a', 'secrets'];
  expect(Object.keys(digests(all)).sort()).toEqual(covered);
  expect(Object.keys(all)).toEqual(expect.arrayContaining([...hostConfigKeys]));
});

test('a key has the same digest when a command writes it and when the file is read', () => {
  const key = { hash: 'sha256:00', role: 'guest' };
  expect(digests({ keys: { ann: key } })['keys.ann']).toBe(digestOfKey('ann', key));
});

test.each([[undefined], [null], ['text'], [[]], [{ mcpServers: [] }], [{ mcpServers: null, keys: 'x' }]])(
  'reading the parts of %j does not fail',
  (config) => {
    expect(partsOf(config, new PlaceholderFiles(folder))).toEqual(expect.any(Array));
  },
);

test('E8 two values have the same digest only if they are the same value', () => {
  const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 3 }), fc.jsonValue({ maxDepth: 3 }), (one, other) => {
      const isSame = isDeepStrictEqual(plain(one), plain(other));
      expect(digestOfKey('k', plain(one)) === digestOfKey('k', plain(other))).toBe(isSame);
    }),
    { numRuns: 300 },
  );
  // Where one value ends and the next begins.
  expect(digestOfKey('a', ['b'])).not.toBe(digestOfKey('a","b', []));
  expect(server({ command: 'a', args: ['b","c'] })).not.toBe(server({ command: 'a', args: ['b', 'c'] }));
});
