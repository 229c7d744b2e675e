import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { normaliseConfig } from './client-config.js';
import { clientKeys, serverTables } from './client-keys.js';
import { configFaults, parseHostConfig } from './host-config.js';

type Table = Record<string, unknown>;

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-client-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
const normalised = (config: unknown) => {
  const { config: made, notes } = normaliseConfig(config);
  return { made: plain(made), notes: notes.map(({ message }) => message) };
};
const entryOf = (entry: unknown): unknown =>
  ((normalised({ mcpServers: { a: entry } }).made as Table).mcpServers as Table).a;

const local = { command: 'node', args: ['x'] };

describe('entries as clients write them', () => {
  const url = 'https://example.com/mcp';
  test.each([
    ['Claude Code', { type: 'stdio', ...local, env: {} }, { ...local, env: {} }],
    ['Claude Code, remote', { type: 'http', url, headers: { A: 'b' } }, { url, headers: { A: 'b' } }],
    ['Claude Code, SSE', { type: 'sse', url }, { url, transport: 'http-sse' }],
    ['Cursor', { ...local, envFile: '.env' }, { ...local, envFile: '.env' }],
    [
      'VS Code',
      { type: 'stdio', ...local, env: { A: 1, B: null, C: true }, dev: { watch: 'x' } },
      { ...local, env: { A: '1', B: null, C: 'true' } },
    ],
    ['Windsurf', { serverUrl: url, disabled: true }, { url, enabled: false }],
    [
      'Cline',
      { ...local, disabled: false, autoApprove: ['a'], timeout: 60 },
      { ...local, enabled: true, timeouts: { call: 60_000 } },
    ],
    [
      'Cline, nested',
      { transport: { type: 'streamableHttp', url }, disabled: false },
      { url, transport: 'streamable-http', enabled: true },
    ],
    ['Cline, nested stdio', { transport: { type: 'stdio', ...local } }, local],
    ['Roo', { type: 'streamable-http', url, alwaysAllow: ['a'] }, { url, transport: 'streamable-http' }],
    ['Zed', { source: 'custom', enabled: true, ...local }, { ...local, enabled: true }],
    [
      'Zed, older',
      { command: { path: 'node', args: ['x'], env: { A: 'b' } }, settings: {} },
      { ...local, env: { A: 'b' } },
    ],
    ['Gemini CLI', { httpUrl: url, timeout: 30_000, trust: true }, { url, timeouts: { call: 30_000 } }],
    [
      'Gemini CLI, tools',
      { ...local, includeTools: ['a'], excludeTools: ['b'] },
      { ...local, tools: { allow: ['a'], deny: ['b'] } },
    ],
    ['Copilot CLI', { type: 'local', ...local, tools: ['*'] }, local],
    ['Copilot CLI, tools', { type: 'local', ...local, tools: ['a'] }, { ...local, tools: { allow: ['a'] } }],
    [
      'opencode',
      { type: 'local', command: ['node', 'x'], environment: { A: 'b' }, enabled: true },
      { ...local, env: { A: 'b' }, enabled: true },
    ],
    ['opencode, remote', { type: 'remote', url, oauth: {} }, { url }],
    [
      'Codex',
      { ...local, env_vars: ['T'], startup_timeout_sec: 10, tool_timeout_sec: 5 },
      { ...local, env: { T: `\${env:T}` }, timeouts: { start: 10_000, call: 5_000 } },
    ],
    [
      'Codex, remote',
      { url, bearer_token_env_var: 'T', http_headers: { A: 'b' } },
      { url, headers: { Authorization: `Bearer \${env:T}`, A: 'b' } },
    ],
    ['Kiro', { ...local, disabled: true, disabledTools: ['a'] }, { ...local, enabled: false, tools: { deny: ['a'] } }],
    ['Warp', { ...local, working_directory: '/w' }, { ...local, cwd: '/w' }],
    ['described', { ...local, description: 'd', name: 'n', icon: 'i' }, local],
    ['keys of the other transport', { url, args: [], env: {}, cwd: '/' }, { url }],
    ['both, and a type', { type: 'sse', url, command: 'node' }, { url, transport: 'http-sse' }],
    [
      'numbers as arguments',
      { command: 'node', args: ['x', 80, true] },
      { command: 'node', args: ['x', '80', 'true'] },
    ],
  ] as const)('%s', (_client, entry, ours) => {
    expect(entryOf(entry)).toEqual(ours);
    expect(
      configFaults({ mcpServers: { a: ours } }).filter(
        ({ details }) => details.field?.endsWith('envFile') !== true && !JSON.stringify(ours).includes('${'),
      ),
    ).toEqual([]);
  });
});

test.each([
  [60, 60_000],
  [999, 999_000],
  [1_000, 1_000],
  [30_000, 30_000],
  [0.5, 500],
  ['60', 60_000],
  ['30s', '30s'],
  [0, undefined],
  [null, undefined],
  [1e12, 86_400_000],
])('a timeout of %j is %j', (timeout, call) => {
  expect(entryOf({ ...local, timeout })).toEqual(call === undefined ? local : { ...local, timeouts: { call } });
});

test('keys of Hostler have priority, and lists and tables are joined', () => {
  expect(
    entryOf({
      ...local,
      timeout: 5,
      timeouts: { call: '9s' },
      env: { A: '1' },
      environment: { A: '2', B: '3' },
      enabled: true,
      disabled: true,
      tools: { deny: ['a'] },
      disabledTools: ['b'],
    }),
  ).toEqual({
    ...local,
    timeouts: { call: '9s' },
    env: { A: '1', B: '3' },
    enabled: false,
    tools: { deny: ['a', 'b'] },
  });
});

describe('a command with its arguments in one text', () => {
  test('is split with a remark, and quotes keep words together', () => {
    const { made, notes } = normalised({ mcpServers: { a: { command: `npx -y pkg "a b" 'c'`, args: ['d'] } } });
    expect(made).toEqual({ mcpServers: { a: { command: 'npx', args: ['-y', 'pkg', 'a b', 'c', 'd'] } } });
    expect(notes).toEqual(["mcpServers.a.command: is split: the program is 'npx', the rest are arguments"]);
    const split = { mcpServers: { a: { command: 'npx x', theirs: 1 } } };
    expect(normaliseConfig(split).notes.map(({ details }) => details.reason)).toEqual(['warning', 'note']);
  });

  test('is not split if it is a file, the path of a missing file, or has an open quote', () => {
    const file = path.join(folder, 'my server');
    writeFileSync(file, '');
    for (const command of [file, path.join(folder, 'no server'), `npx "a b`])
      expect(normalised({ mcpServers: { a: { command } } })).toEqual({
        made: { mcpServers: { a: { command } } },
        notes: [],
      });
    expect(entryOf({ command: `"${file}" x` })).toEqual({ command: file, args: ['x'] });
  });
});

describe('tables and names', () => {
  test.each(serverTables.filter((table) => table !== 'mcp.servers'))('%s holds servers', (table) => {
    expect(normalised({ [table]: { 'My Server': local } })).toEqual({
      made: { mcpServers: { 'my-server': { label: 'My Server', ...local } } },
      notes: [],
    });
  });

  test('mcp may hold a table of servers, or settings', () => {
    expect(normalised({ mcp: { servers: { a: local } } }).made).toEqual({ mcpServers: { a: local } });
    expect(normalised({ mcp: { allowed: ['a'] }, mcpServers: { a: local } }).made).toEqual({
      mcpServers: { a: local },
    });
  });

  test('two tables are joined, and of two equal names the one in mcpServers has priority', () => {
    const { made, notes } = normalised({ servers: { a: { command: 'b' }, c: local }, mcpServers: { a: local } });
    expect(made).toEqual({ mcpServers: { a: local, c: local } });
    expect(notes).toEqual(['servers.a: is also in mcpServers, which has priority']);
  });

  test('a definition has the slug as its name and the written name as its label', () => {
    const { mcpServers, unusable } = parseHostConfig({ mcpServers: { '@21st-dev/magic': local, 'B C': {} } }, () => {});
    expect([...mcpServers.values()].map(({ name, label, spec }) => [name, label, spec.name])).toEqual([
      ['21st-dev-magic', '@21st-dev/magic', '21st-dev-magic'],
    ]);
    expect([...unusable].map(([name, { label }]) => [name, label])).toEqual([['b-c', 'B C']]);
  });
});

describe('keys that are not known', () => {
  test('of clients are reported once per file: in one remark for all entries and one for the top level', () => {
    const entry = { ...local, autoApprove: [], alwaysAllow: [], frobnicate: 1 };
    const config = {
      inputs: [],
      numStartups: 3,
      telemetry: { diagnostics: false },
      mcpServers: { a: entry, b: entry },
    };
    const { made, notes } = normalised(config);
    expect(made).toEqual({ mcpServers: { a: local, b: local } });
    expect(notes).toEqual([
      'inputs: these keys have no effect in Hostler: inputs, numStartups, telemetry',
      'mcpServers.a.autoApprove: these keys have no effect in Hostler: autoApprove, alwaysAllow, frobnicate',
    ]);
  });

  test.each([
    [{ comand: 'node' }, 'mcpServers.a: needs a command'],
    [{ ...local, keepalive: 5 }, 'mcpServers.a.keepalive: is not known; did you mean keepAlive?'],
    [{ ...local, enabeld: true }, 'mcpServers.a.enabeld: is not known; did you mean enabled?'],
    [{ ...local, sandbx: 'standard' }, 'mcpServers.a.sandbx: is not known; did you mean sandbox?'],
    [{ ...local, evn: {} }, 'mcpServers.a.evn: is not known; did you mean env?'],
  ])('of Hostler disable the entry if they are misspelt: %j', (entry, message) => {
    const faults = configFaults({ mcpServers: { a: entry, b: local } });
    expect(faults.map((fault) => fault.message)).toEqual([expect.stringContaining(message)]);
  });

  test('of Hostler at the top level make the file unusable if they are misspelt, and all faults are reported', () => {
    const faults = configFaults({
      mcpServer: {},
      role: {},
      listen: { port: -1, hots: 1 },
      mcpServers: { a: { command: 5, pins: 1, lasy: 2 } },
    });
    expect(faults.map(({ details }) => details.field)).toEqual([
      ...['mcpServer', 'role', 'listen.port', 'listen.hots'],
      ...['mcpServers.a.command', 'mcpServers.a.lasy', 'mcpServers.a.pins'],
    ]);
    expect(() => parseHostConfig({ mcpServer: {} }, () => {})).toThrow('did you mean mcpServers?');
  });
});

describe('any JSON', () => {
  const key = fc.oneof(
    fc.constantFrom(
      ...clientKeys.keys(),
      ...serverTables,
      'command',
      'url',
      'env',
      'args',
      'tools',
      'transport',
      'timeouts',
      '__proto__',
    ),
    fc.string(),
  );
  const json = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      fc.jsonValue({ maxDepth: 1 }),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(key, tie('value'), { maxKeys: 5, noNullPrototype: false }),
    ),
  })).value;

  test('is normalised without an error, and a second time without a change', () => {
    fc.assert(
      fc.property(json, (config) => {
        const once = normaliseConfig(config).config;
        expect(normaliseConfig(once)).toEqual({ config: once, notes: [], written: new Map() });
      }),
      { numRuns: 1_000 },
    );
  });

  test('beside a valid entry does not remove that entry', () => {
    const table = fc.constantFrom('mcpServers', 'servers', 'context_servers');
    fc.assert(
      fc.property(
        table,
        fc.dictionary(fc.string(), json, { maxKeys: 4 }),
        fc.dictionary(key, json, { maxKeys: 3 }),
        (of, others, more) => {
          const mcpServers = Object.assign(Object.create(null), others, { 'Valid one': local }) as Table;
          const { config } = normaliseConfig(Object.assign(Object.create(null), more, { [of]: mcpServers }));
          const servers = (config as { mcpServers: Record<string, { label?: string; command?: string }> }).mcpServers;
          const found = Object.values(servers).filter((entry) => entry?.label === 'Valid one');
          expect(found.some(({ command }) => command === 'node')).toBe(true);
          const settings = parseHostConfig({ mcpServers }, () => {});
          expect([...settings.mcpServers.values()].filter(({ label }) => label === 'Valid one')).toHaveLength(1);
        },
      ),
      { numRuns: 500 },
    );
  });
});
