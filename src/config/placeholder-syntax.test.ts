/** Placeholders of clients, tested by reading whole configurations. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { faultsOf, type HostError, isHostError } from '../kernel/errors.js';
import { readConfigFile } from './config-file.js';
import { parseHostConfig } from './host-config.js';
import { fillPlaceholders } from './placeholders.js';
import { isStdio } from './server-spec.js';

const home = mkdtempSync(path.join(os.tmpdir(), 'hostler-placeholders-'));
const project = path.join(home, 'project');
for (const folder of ['project/.vscode', 'project/.cursor', '.cursor', '.config/zed'])
  mkdirSync(path.join(home, folder), { recursive: true });
writeFileSync(path.join(project, 'secret.txt'), 'from-a-file\n');
writeFileSync(path.join(home, 'of-home.txt'), 'from-home\n');
afterAll(() => rmSync(home, { recursive: true, force: true }));

const env = { V: 'value', EMPTY: '', HOME: home, lower: 'small' };

/** The parsed servers and all faults of a file. */
function read(config: unknown, place = 'project/hostler.json', variables: Record<string, string> = env) {
  const file = path.join(home, place);
  writeFileSync(file, JSON.stringify(config));
  const faults: string[] = [];
  let locate = (error: HostError): HostError => error;
  const told = (error: HostError) => faults.push(locate(error).message);
  try {
    const { config: filled, problems, locate: inFile } = readConfigFile(file, variables);
    locate = inFile;
    for (const problem of problems) told(problem);
    return { ...parseHostConfig(filled, told, true), faults, file };
  } catch (error) {
    if (!isHostError(error)) throw error;
    for (const fault of faultsOf(error)) told(fault);
    return { mcpServers: new Map<string, never>(), faults, file };
  }
}

const local = (entry: object) => ({ mcpServers: { a: { command: 'node', ...entry } } });
const remote = (entry: object) => ({ mcpServers: { a: { url: 'https://example.com/mcp', ...entry } } });
const at = {
  arg: (text: string) => local({ args: [text] }),
  env: (text: string) => local({ env: { T: text } }),
  url: (text: string) => remote({ url: text }),
  header: (text: string) => remote({ headers: { T: text } }),
  cwd: (text: string) => local({ cwd: text }),
  command: (text: string) => local({ command: text }),
};

function valueAt(place: keyof typeof at, spec: unknown): unknown {
  const { args, env: variables, url, headers, cwd, command } = spec as Record<string, Record<string, unknown>>;
  return { arg: args?.[0], env: variables?.T, url, header: headers?.T, cwd, command }[place];
}

const braces = (content: string) => `$\{${content}}`;

describe('AC-E4 a placeholder in the syntax of each client is replaced by its value', () => {
  const rows: readonly (readonly [
    client: string,
    place: keyof typeof at,
    written: string,
    value: string,
    file?: string,
  ])[] = [
    ['hostler', 'arg', braces('env:V'), 'value'],
    ['hostler', 'env', braces('env:V'), 'value'],
    ['hostler', 'env', braces('env:V:-d'), 'value'],
    ['hostler', 'env', braces('env:NONE:-d'), 'd'],
    ['hostler', 'env', braces('env:NONE:-'), ''],
    ['hostler', 'env', braces('env:NONE:-a:-b c'), 'a:-b c'],
    ['hostler', 'env', braces('env:EMPTY:-d'), ''],
    ['hostler', 'cwd', braces('file:secret.txt'), 'from-a-file'],
    ['hostler', 'cwd', braces('file:~/of-home.txt'), 'from-home'],
    ['claude-code', 'command', braces('V'), 'value'],
    ['claude-code', 'arg', braces('V'), 'value'],
    ['claude-code', 'env', braces('V'), 'value'],
    ['claude-code', 'url', `https://${braces('V')}.example/mcp`, 'https://value.example/mcp'],
    ['claude-code', 'header', `Bearer ${braces('V')}`, 'Bearer value'],
    ['claude-code', 'arg', braces('NONE:-d'), 'd'],
    ['claude-code', 'url', braces('NONE:-https://d.example/mcp'), 'https://d.example/mcp'],
    ['claude-code', 'header', `Bearer ${braces('NONE:-none')}`, 'Bearer none'],
    ['claude-code', 'arg', '$V', '$V'],
    ['claude-code', 'arg', `${braces('V')}/${braces('lower')}`, 'value/small'],
    ['cursor', 'arg', braces('env:V'), 'value', 'project/.cursor/mcp.json'],
    ['cursor', 'arg', braces('userHome'), home, 'project/.cursor/mcp.json'],
    ['cursor', 'arg', braces('workspaceFolder'), project, 'project/.cursor/mcp.json'],
    ['cursor', 'arg', braces('workspaceFolderBasename'), 'project', 'project/.cursor/mcp.json'],
    ['cursor', 'arg', `a${braces('/')}b`, 'a/b', 'project/.cursor/mcp.json'],
    ['cursor', 'arg', `a${braces('pathSeparator')}b`, 'a/b', 'project/.cursor/mcp.json'],
    ['vscode', 'header', `Bearer ${braces('env:V')}`, 'Bearer value', 'project/.vscode/mcp.json'],
    ['vscode', 'cwd', `${braces('workspaceFolder')}/x`, `${project}/x`, 'project/.vscode/mcp.json'],
    ['copilot-cli', 'env', braces('V'), 'value', 'project/.mcp.json'],
    ['windsurf', 'url', `https://${braces('env:V')}.example/mcp`, 'https://value.example/mcp'],
    ['roo', 'env', braces('env:V'), 'value'],
    ['gemini-cli', 'env', '$V', 'value'],
    ['gemini-cli', 'env', braces('V'), 'value'],
    ['gemini-cli', 'env', '%V%', 'value'],
    ['gemini-cli', 'header', '$V', 'value'],
    ['opencode', 'env', '{env:V}', 'value'],
    ['opencode', 'header', 'Bearer {env:V}', 'Bearer value'],
    ['opencode', 'cwd', '{file:secret.txt}', 'from-a-file'],
    ['opencode', 'cwd', '{file:~/of-home.txt}', 'from-home'],
    ['mcporter', 'env', '$env:V', 'value'],
    ['mcporter', 'header', '$env:V', 'value'],
    ['kiro', 'env', braces('V'), 'value'],
    ['amazon-q', 'env', braces('env:V'), 'value'],
    ['a shell', 'arg', `$${braces('V')}`, braces('V')],
    [
      'a shell',
      'arg',
      `${braces('1')} ${braces('#x')} ${braces('x%y')} $V {a}`,
      `${braces('1')} ${braces('#x')} ${braces('x%y')} $V {a}`,
    ],
    ['a password', 'env', 'pa$WORD', 'pa$WORD'],
  ];

  test('the table has at least 40 rows', () => {
    expect(rows.length).toBeGreaterThanOrEqual(40);
  });

  const cases = rows.map(([client, place, written, value, file]) => ({ client, place, written, value, file }));
  test.each(cases)('$client, $place: $written', ({ place, written, value, file }) => {
    const { mcpServers, faults } = read(at[place](written), file);
    expect([faults, valueAt(place, mcpServers.get('a')?.spec)]).toEqual([[], value]);
  });

  test('and so are the keys in which Codex names variables', () => {
    const { mcpServers } = read({
      mcpServers: {
        a: { command: 'x', env_vars: ['V'] },
        b: { url: 'https://x.example', env_http_headers: { A: 'V' }, bearer_token_env_var: 'V' },
      },
    });
    expect(
      [...mcpServers.values()].map(({ spec }) => (isStdio(spec) ? spec.env : 'headers' in spec && spec.headers)),
    ).toEqual([{ V: 'value' }, { A: 'value', Authorization: 'Bearer value' }]);
  });
});

describe('AC-E4 a value that cannot be read disables only its own entry, and the error names the entry', () => {
  test.each([
    ['claude-code', braces('NONE'), 'the variable NONE is not set', undefined],
    ['cursor', braces('env:NONE'), 'the variable NONE is not set', undefined],
    ['gemini-cli', '$NONE', 'the variable NONE is not set', undefined],
    ['gemini-cli', '%NONE%', 'the variable NONE is not set', undefined],
    ['opencode', '{env:NONE}', 'the variable NONE is not set', undefined],
    ['vscode', braces('input:token'), 'is a value that only its client can ask for or look up', undefined],
    ['vscode', braces('command:get'), 'is a value that only its client can ask for or look up', undefined],
    ['vscode', braces('config:a.b'), 'is a value that only its client can ask for or look up', undefined],
    ['continue', braces('{ secrets.T }'), 'is a value that only its client can ask for or look up', undefined],
    ['mcpb', braces('user_config.key'), 'is a value that only its client can ask for or look up', undefined],
    ['cursor of the user', braces('workspaceFolder'), 'needs the folder of a project', '.cursor/mcp.json'],
    ['zed of the user', braces('workspaceFolder'), 'needs the folder of a project', '.config/zed/settings.json'],
    ['nested', braces(`V:-${braces('W')}`), 'the default of a placeholder contains another placeholder', undefined],
  ])('%s: %s', (_client, written, reason, place) => {
    const config = {
      mcpServers: { 'My Server': { command: 'node', env: { T: written } }, other: { command: 'node' } },
    };
    const { mcpServers, faults, file } = read(config, place);
    expect([...mcpServers.keys()]).toEqual(['other']);
    const said = /^(?:is|needs) /.test(reason) ? `${written} ${reason}` : reason;
    expect(faults).toEqual([expect.stringContaining(`${file}:1:53: mcpServers.My Server.env.T: ${said}`)]);
  });

  test('all faults of all entries are reported with line and column', () => {
    const { faults, file } = read({
      servers: {
        a: { command: 'x', serverUrl: 5, env: { A: braces('NO_A'), B: braces('NO_B') }, timeouts: { cal: 1 } },
        b: { serverUrl: 'example.com' },
      },
      listen: { port: -1 },
    });
    expect(faults.map((fault) => fault.replace(file, ''))).toEqual([
      ':1:53: servers.a.env.A: the variable NO_A is not set',
      ':1:67: servers.a.env.B: the variable NO_B is not set',
      ':1:13: servers.a: has a command (stdio) and a url (HTTP): keep one of them',
      ':1:94: servers.a.timeouts.cal: is not known',
      ':1:109: servers.b.serverUrl: must be an http or https URL: write https://example.com instead of example.com',
      ':1:147: listen.port: must be from 0 to 65535',
    ]);
  });
});

test('envFile: its variables are added, env has priority, and a missing file disables the entry', () => {
  writeFileSync(path.join(project, '.env'), '# comment\nA=1\nexport B="two words"\nT=file\n');
  const { mcpServers } = read(local({ envFile: `${braces('workspaceFolder')}/.env`, env: { T: 'own', N: null } }));
  expect(mcpServers.get('a')?.spec).toMatchObject({ env: { A: '1', B: 'two words', T: 'own', N: null } });
  expect(read(local({ envFile: '.missing' })).faults[0]).toContain('envFile: .missing cannot be read (ENOENT)');
  expect(read(local({ envFile: `${braces('NONE')}/.env` })).faults[0]).toContain('the variable NONE is not set');
});

test('envFile: the values of its variables are secrets, except those of harmless variables', () => {
  writeFileSync(path.join(project, '.env'), 'API_TOKEN=from-the-env-file\nHOME=/h/own-folder\n');
  const { secrets } = fillPlaceholders(
    { mcpServers: { a: { command: 'x', envFile: '.env' } } },
    { env, folder: project },
  );
  expect(secrets).toEqual(['from-the-env-file']);
});

test('an integer too large for a number keeps its digits', () => {
  const file = path.join(project, 'digits.json');
  writeFileSync(file, '{ "mcpServers": { "a": { "command": "x", "env": { "ID": 1234567890123456789, "N": -0.5 } } } }');
  const { mcpServers } = parseHostConfig(readConfigFile(file, env).config, () => {}, true);
  expect(mcpServers.get('a')?.spec).toMatchObject({ env: { ID: '1234567890123456789', N: '-0.5' } });
});
