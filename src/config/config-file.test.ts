import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { parseConfigText, readConfigFile } from './config-file.js';
import { parseHostConfig } from './host-config.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-config-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const write = (name: string, text: string): string => {
  const file = path.join(folder, name);
  writeFileSync(file, text);
  return file;
};

const dollar = (text: string) => `$\{${text}}`;

function errorOf(run: () => unknown): HostError {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(HostError);
    return error as HostError;
  }
  throw new Error('nothing was thrown');
}

test('comments and trailing commas are fine', () => {
  const text = '\ufeff{\n  // why\n  "mcpServers": { "a": { "command": "node", /* here */ "args": ["x",], }, },\n}\n';
  expect(JSON.stringify(parseConfigText(text, 'hostler.json'))).toBe(
    '{"mcpServers":{"a":{"command":"node","args":["x"]}}}',
  );
});

describe('a mistake in the text is reported with its line and column', () => {
  test.each([
    ['{\n  "a": 1\n  "b": 2\n}', 'h.json:3:3: comma expected'],
    ['{ "a": tru }', 'h.json:1:8: invalid symbol'],
    ['{ "a": 1,\r\n  "a": 2 }', "h.json:2:3: the key 'a' is given twice"],
    ['', 'h.json:1:1: value expected'],
    ['{ "a": 1 } 2', 'h.json:1:12: end of file expected'],
    [`${'['.repeat(70)}${']'.repeat(70)}`, 'h.json:1:66: is nested more than 64 deep'],
  ])('%j', (text, message) => {
    expect(errorOf(() => parseConfigText(text, 'h.json')).message).toBe(message);
  });
});

test('a key with a special name is a key like any other', () => {
  expect(Object.keys(parseConfigText('{"__proto__": {"mcpServers": {}}}', 'x') as object)).toEqual(['__proto__']);
});

test.each([
  [path.join(folder, 'none.json'), /none\.json does not exist$/],
  [folder, /is not a file$/],
])('%s cannot be read, and the error says what to do', (file, message) => {
  const error = errorOf(() => readConfigFile(file, {}));
  expect(error.message).toMatch(message);
  expect(error.hint).toMatch(/name (?:a|another) file/);
});

describe('placeholders', () => {
  test('are filled in from the environment and from files beside the configuration', () => {
    write('token', 'from a file\r\n');
    const file = write(
      'full.json',
      JSON.stringify({
        mcpServers: {
          a: {
            command: 'x',
            env: { T: dollar('env:T'), H: dollar('env:HOME') },
            args: [`--t=${dollar('file:token')}!`],
          },
        },
      }),
    );
    const { config, secrets, problems } = readConfigFile(file, { T: 'hunter2', HOME: '/home' });
    expect(JSON.parse(JSON.stringify(config))).toEqual({
      mcpServers: { a: { command: 'x', env: { T: 'hunter2', H: '/home' }, args: ['--t=from a file!'] } },
    });
    // Where the account lives is no secret; to blot it out would garble every path.
    expect([secrets, problems]).toEqual([['hunter2', 'from a file'], []]);
  });

  test('one that cannot be filled in takes its entry along, and no other', () => {
    write('huge', 'x'.repeat(64 * 1024 + 1));
    const entry = (value: string) => ({ command: 'x', env: { T: value } });
    const file = write(
      'partly.json',
      JSON.stringify({
        mcpServers: {
          unset: entry(dollar('env:NOT_SET')),
          gone: entry(dollar('file:gone')),
          huge: entry(dollar('file:huge')),
          good: entry('plain'),
        },
        roles: { open: { allow: [dollar('env:NOT_SET')] } },
        budgets: { roles: { open: { calls: 5, window: dollar('env:NOT_SET') } } },
      }),
    );
    const { config, problems } = readConfigFile(file, {});
    const told = [...problems];
    const settings = parseHostConfig(config, (problem) => told.push(problem));
    expect([...settings.mcpServers.keys()]).toEqual(['good']);
    // Those that limit somebody err to the safe side.
    expect(settings.roles?.get('open')).toEqual([]);
    expect(settings.budgets.roles.get('open')?.calls).toBe(0);
    expect(told.map(({ message }) => message)).toEqual([
      'roles.open.allow.0: the variable NOT_SET is not set',
      'budgets.roles.open.window: the variable NOT_SET is not set',
      'mcpServers.unset.env.T: the variable NOT_SET is not set',
      'mcpServers.gone.env.T: gone cannot be read (ENOENT)',
      'mcpServers.huge.env.T: huge is larger than 64 KiB',
    ]);
  });

  test('where there is no entry to leave out, the file is not used', () => {
    const file = write('listen.json', JSON.stringify({ listen: { host: dollar('env:NOT_SET') } }));
    expect(errorOf(() => readConfigFile(file, {})).message).toBe('listen.host: the variable NOT_SET is not set');
  });
});

test('E12 a placeholder names a variable, never a member that every object inherits', () => {
  const mcpServers = { a: { command: dollar('env:toString') }, b: { command: dollar('env:__proto__') } };
  const file = write('inherited.json', JSON.stringify({ mcpServers }));
  const problems: HostError[] = [];
  const { config } = readConfigFile(file, process.env);
  parseHostConfig(config, (problem) => problems.push(problem));
  expect(problems.map(({ message }) => message)).toEqual([
    'mcpServers.a.command: the variable toString is not set',
    'mcpServers.b.command: the variable __proto__ is not set',
  ]);
});

test('E10 a text of a million brackets is a mistake with its place, and an entry that is too deep is disabled alone', () => {
  expect(errorOf(() => parseConfigText('['.repeat(1_000_000), 'h.json')).details.reason).toBe('syntax');
  const deep = `${'['.repeat(80)}${']'.repeat(80)}`;
  const { config } = readConfigFile(
    write('deep.json', `{ "mcpServers": { "bad": { "args": ${deep} }, "good": { "command": "node" } } }`),
    {},
  );
  const problems: HostError[] = [];
  const { mcpServers } = parseHostConfig(config, (problem) => problems.push(problem));
  expect([...mcpServers.keys()]).toEqual(['good']);
  expect(problems[0]?.message).toContain('is nested more than 64 deep');
});
