import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, describe, expect, test } from 'vitest';
import { faultsOf, HostError } from '../kernel/errors.js';
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

  test('once, also where the parser finds several at one place', () => {
    const faults = faultsOf(errorOf(() => parseConfigText('{ "a": { "b": {', 'h.json')));
    expect(faults.map(({ message }) => message)).toEqual(['h.json:1:16: close brace expected']);
  });
});

describe('values at the top level that only a client reads', () => {
  const servers = '"mcpServers": {"a": {"command": "node", "typo": 1, "args": ["x"]}}';
  test('are not read, however deep or large, and places in the file stay right', () => {
    const deep = `${'['.repeat(200)}1${']'.repeat(200)}`;
    const text = `{\n  "projects": {"p": {"b": [\n{}], "b": 2}},\n  "deep": ${deep}, "n": 1, "s": "}{",\n  ${servers}, "l": [1]\n}`;
    const { config, problems, locate } = readConfigFile(write('client.json', text), {});
    expect(JSON.parse(JSON.stringify(config))).toEqual({
      mcpServers: { a: { command: 'node', args: ['x'] } },
    });
    expect(problems.map((problem) => locate(problem).message.replace(folder, ''))).toEqual([
      '/client.json:2:3: projects: these keys have no effect in Hostler: projects, deep, n, s, l',
      '/client.json:5:43: mcpServers.a.typo: these keys have no effect in Hostler: typo',
    ]);
  });

  test('with a mistake are reported', () => {
    const text = `{ "projects": {"a": tru}, ${servers} }`;
    expect(errorOf(() => parseConfigText(text, 'h.json')).message).toBe('h.json:1:21: invalid symbol');
  });

  test('are not kept in memory', () => {
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as () => void;
    const name = 'a name of more than twelve characters';
    const entry = { [name]: { command: 'a command of more than twelve characters', typo: 1 } };
    const file = write('kept.json', JSON.stringify({ history: ['x'.repeat(30 * 2 ** 20)], mcpServers: entry }));
    gc();
    const before = process.memoryUsage().heapUsed;
    const read = readConfigFile(file, {});
    gc();
    expect((process.memoryUsage().heapUsed - before) / 2 ** 20).toBeLessThan(10);
    expect(read.problems.map((each) => read.locate(each).message).join()).toContain('kept.json:1:');
  });

  test('may be larger than 4 MiB, up to 32 MiB', () => {
    const history = (mib: number) => `{ "history": ["${'x'.repeat(mib * 2 ** 20)}"], ${servers} }`;
    expect(parseHostConfig(readConfigFile(write('big.json', history(5)), {}).config, () => {}).mcpServers.size).toBe(1);
    expect(errorOf(() => readConfigFile(write('big.json', history(32)), {})).message).toMatch(/is larger than 32 MiB$/);
  });
});

test('a key with a special name is an ordinary key', () => {
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
            cwd: `${dollar('file:token')}!`,
          },
        },
      }),
    );
    const { config, secrets, problems } = readConfigFile(file, { T: 'hunter2', HOME: '/home' });
    expect(JSON.parse(JSON.stringify(config))).toEqual({
      mcpServers: { a: { command: 'x', env: { T: 'hunter2', H: '/home' }, cwd: 'from a file!' } },
    });
    // The home folder is no secret; redacting it would garble every path.
    expect([secrets, problems]).toEqual([['hunter2', 'from a file'], []]);
  });

  test('that cannot be filled in disable only their own entry', () => {
    write('huge', 'x'.repeat(64 * 1024 + 1));
    const entry = (value: string) => ({ command: 'x', cwd: value });
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
    // Entries that limit a caller become stricter.
    expect(settings.roles?.get('open')).toEqual([]);
    expect(settings.budgets.roles.get('open')?.calls).toBe(0);
    expect(told.map(({ message }) => message)).toEqual([
      'roles.open.allow.0: the variable NOT_SET is not set',
      'budgets.roles.open.window: the variable NOT_SET is not set',
      'mcpServers.unset.cwd: the variable NOT_SET is not set',
      'mcpServers.gone.cwd: gone cannot be read (ENOENT)',
      'mcpServers.huge.cwd: huge is larger than 64 KiB',
    ]);
  });

  test('for files and commands stay references in variables and headers; a filled-in value never becomes a reference', () => {
    const entry = { url: 'https://x', headers: { A: `Bearer ${dollar('file:token')}`, B: dollar('env:ODD') } };
    const env = { A: `${dollar('env:ODD')}-${dollar('exec:vault')}-${dollar('file:/abs/b')}` };
    const config = {
      secrets: { exec: { vault: { argv: ['v'] } } },
      mcpServers: { a: entry, b: { command: 'x', env } },
    };
    const file = write('late.json', JSON.stringify(config));
    const odd = dollar('file:/etc/passwd');
    const { config: filled, secrets, problems } = readConfigFile(file, { ODD: odd });
    const { mcpServers } = filled as { mcpServers: Record<string, Record<string, Record<string, string>>> };
    const escaped = `${dollar('text:$')}{file:/etc/passwd}`;
    expect([{ ...mcpServers.a?.headers }, { ...mcpServers.b?.env }]).toEqual([
      { A: `Bearer ${dollar(`file:${path.join(path.dirname(file), 'token')}`)}`, B: escaped },
      { A: `${escaped}-${dollar('exec:vault')}-${dollar('file:/abs/b')}` },
    ]);
    expect([secrets, problems]).toEqual([[odd], []]);
  });

  test('AC-K5 for commands work only in variables and headers, and only if the command is configured', () => {
    const mcpServers = {
      a: { command: 'x', args: [dollar('exec:vault')] },
      b: { command: 'x', env: { A: dollar('exec:other') } },
    };
    const file = write('exec.json', JSON.stringify({ secrets: { exec: { vault: { argv: ['v'] } } }, mcpServers }));
    const told: HostError[] = [];
    parseHostConfig(readConfigFile(file, {}).config, (problem) => told.push(problem), true);
    expect(told.map(({ message }) => message)).toEqual([
      "mcpServers.a.args.0: the output of the command 'vault' cannot be used here",
      "mcpServers.b.env.A: the command 'other' is not in secrets.exec",
    ]);
  });

  test('the secret of a client stays a reference; other members of auth are filled in, without commands', () => {
    const auth = (issuer: string) => ({
      ...{ issuer, clientId: dollar('env:ID'), clientSecret: dollar('exec:vault') },
      clientKey: { pem: dollar('file:/abs/key') },
    });
    const mcpServers = {
      a: { url: 'https://x', auth: auth('https://as') },
      b: { url: 'https://x', auth: auth(dollar('exec:vault')) },
    };
    const file = write('client.json', JSON.stringify({ secrets: { exec: { vault: { argv: ['v'] } } }, mcpServers }));
    const { config } = readConfigFile(file, { ID: 'client-1' });
    const { a, b } = (config as { mcpServers: Record<string, { auth?: object; message?: string }> }).mcpServers;
    const expected = { ...auth('https://as'), clientId: 'client-1' };
    expect(JSON.parse(JSON.stringify(a?.auth))).toEqual(expected);
    const told: HostError[] = [];
    parseHostConfig({ ...(config as object), mcpServers: { b } }, (problem) => told.push(problem), true);
    expect(told.map(({ message }) => message)).toContain(
      "mcpServers.b.auth.issuer: the output of the command 'vault' cannot be used here",
    );
  });

  test('AC-K5 a secret in an argument is reported by its path, and refused with secrets.strict', () => {
    write('token', 's3cret-value');
    const args = [dollar('env:API_KEY'), dollar('env:ROOT'), `--t=${dollar('file:token')}`];
    const mcpServers = { a: { command: 'x', args } };
    const told = (strict: boolean) => {
      const file = write('args.json', JSON.stringify({ secrets: { strict }, mcpServers }));
      const { config, problems } = readConfigFile(file, { API_KEY: 'hunter2', ROOT: '/' });
      const all = [...problems];
      const { mcpServers: usable } = parseHostConfig(config, (problem) => all.push(problem), true);
      return [usable.size, ...all.map(({ message }) => message)];
    };
    const text = 'puts a secret on the command line, which every local user can read';
    expect(told(false)).toEqual([1, `mcpServers.a.args.0: ${text}`, `mcpServers.a.args.2: ${text}`]);
    expect(told(true)).toEqual([0, `mcpServers.a.args.0: ${text}`, `mcpServers.a.args.2: ${text}`]);
  });

  test('outside of all entries make the file unusable if they cannot be filled in', () => {
    const file = write('listen.json', JSON.stringify({ listen: { host: dollar('env:NOT_SET') } }));
    expect(errorOf(() => readConfigFile(file, {})).message).toBe(
      `${file}:1:12: listen.host: the variable NOT_SET is not set`,
    );
  });
});

test('E12 a placeholder names a variable, never an inherited member of objects', () => {
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

test('E10 a text of a million brackets is a syntax error, and an entry that is nested too deep disables only itself', () => {
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
