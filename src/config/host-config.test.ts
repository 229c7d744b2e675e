import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { parseHostConfig } from './host-config.js';
import { hostConfigKeys } from './known-keys.js';

/** The settings, and the reported issues of single entries: field and sentence. */
function parse(config: unknown) {
  const told: HostError[] = [];
  const settings = parseHostConfig(config, (problem) => told.push(problem));
  return { settings, told, fields: told.map(({ details }) => details.field) };
}

const server = { command: 'node' };

const to = (of: string, tool: string) => ({ server: of, tool });

test('an empty configuration guards nothing, limits nothing and starts nothing', () => {
  const { settings, told } = parse({});
  expect(told).toEqual([]);
  expect(settings).toEqual({
    mcpServers: new Map(),
    unusable: new Map(),
    roles: undefined,
    unlistedRole: undefined,
    budgets: { principals: new Map(), roles: new Map() },
    groups: new Map(),
    telemetry: { traces: false },
    keys: {},
    idleExitMs: 30_000,
    listen: { host: '127.0.0.1', port: 8383, allowedHosts: [], allowedOrigins: [], drain: '10s' },
    log: { level: 'info' },
    secrets: { exec: {}, strict: false },
  });
});

test('a complete configuration is parsed and frozen', () => {
  const { settings, told } = parse({
    mcpServers: { git: server, web: { url: 'https://example.com/mcp' } },
    roles: { dev: { allow: ['git/*', 'web/fetch'] }, guest: { allow: [] } },
    budgets: { principals: { ada: { calls: 10, window: '1m' } }, roles: { dev: { calls: 0, window: 500 } } },
    groups: { code: ['git'] },
  });
  expect(told).toEqual([]);
  expect([...settings.mcpServers.keys()]).toEqual(['git', 'web']);
  expect(settings.roles).toEqual(
    new Map([
      ['dev', [to('git', '*'), to('web', 'fetch')]],
      ['guest', []],
    ]),
  );
  expect(settings.unlistedRole).toBe('deny');
  expect(settings.budgets.principals).toEqual(new Map([['ada', { calls: 10, windowMs: 60_000 }]]));
  expect(settings.budgets.roles).toEqual(new Map([['dev', { calls: 0, windowMs: 500 }]]));
  expect(settings.groups).toEqual(new Map([['code', ['git']]]));
  for (const part of [settings, settings.budgets, settings.roles?.get('dev'), settings.groups.get('code')])
    expect(Object.isFrozen(part)).toBe(true);
});

test('traces are on if the configuration turns them on', () => {
  expect(parse({ telemetry: { traces: true } }).settings.telemetry).toEqual({ traces: true });
});

test.each([
  [{}, undefined],
  [{ roles: {} }, 'deny'],
  [{ unlistedRole: 'deny' }, 'deny'],
  [{ roles: {}, unlistedRole: 'allow' }, 'allow'],
  [{ unlistedRole: 'allow' }, 'allow'],
])('with %j, unlistedRole is %s', (config, unlistedRole) => {
  expect(parse(config).settings.unlistedRole).toBe(unlistedRole);
});

describe('D-29 a mistake that makes the whole file unusable is thrown, with its path', () => {
  test.each([
    [undefined, ''],
    [[], ''],
    ['{}', ''],
    [{ mcpservers: {} }, 'mcpservers'],
    [{ mcpServers: [] }, 'mcpServers'],
    [{ mcpServers: null }, 'mcpServers'],
    [{ roles: [] }, 'roles'],
    [{ unlistedRole: 'maybe' }, 'unlistedRole'],
    [{ unlistedRole: null }, 'unlistedRole'],
    [{ budgets: 5 }, 'budgets'],
    [{ budgets: { everyone: {} } }, 'budgets.everyone'],
    [{ budgets: { roles: [] } }, 'budgets.roles'],
    [{ groups: ['a'] }, 'groups'],
    [{ telemetry: 'on' }, 'telemetry'],
    [{ telemetry: { trace: true } }, 'telemetry.trace'],
    [{ telemetry: { traces: 'yes' } }, 'telemetry.traces'],
  ])('%j', (config, field) => {
    let error: unknown;
    try {
      parse(config);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(HostError);
    expect(error).toMatchObject({ code: 'invalid_spec', details: { field } });
  });

  test('in broker, whose empty object gets all defaults', () => {
    expect(parse({}).settings.broker).toBeUndefined();
    expect(parse({ broker: {} }).settings.broker).toMatchObject({
      listen: { host: '127.0.0.1', port: 8384, insecure: false },
      durability: 'power',
      limits: { connections: 4_096, callsPerWorker: 64, bytesPerSecond: 16 * 1024 * 1024 },
    });
    for (const [entry, field] of [
      [{ url: 'http://x' }, 'broker.url'],
      [{ listen: { port: 70_000 } }, 'broker.listen.port'],
      [{ listen: { tls: { cert: 'a' } } }, 'broker.listen.tls.key'],
      [{ limits: { connections: 0 } }, 'broker.limits.connections'],
      [{ monitor: 'localhost:8222' }, 'broker.monitor'],
      [{ engine: 'x' }, 'broker.engine'],
      [{ limits: { callsPerWorker: 193 } }, 'broker.limits.callsPerWorker'],
      [{ url: 'wss://other:8384' }, 'broker.url: must be the address of a NATS server'],
      [{ url: 'nats://other:4222/worker' }, 'broker.url: must begin with nats:// or tls:// and name a server'],
      [{ compat: true }, 'broker.compat: is not used any more'],
      [{ limits: { burst: 5 } }, 'broker.limits.burst: is not used any more'],
    ] as const)
      expect(() => parse({ broker: entry })).toThrow(field);
  });

  test('R4 in idleExit, which is a duration, or 0 for never', () => {
    expect([parse({ idleExit: '1m' }).settings.idleExitMs, parse({ idleExit: 0 }).settings.idleExitMs]).toEqual([
      60_000, 0,
    ]);
    for (const idleExit of ['soon', -1, {}]) expect(() => parse({ idleExit })).toThrow(/^idleExit/);
  });
});

test('every key in the list of keys is accepted', () => {
  const scalars: Record<string, string> = { unlistedRole: 'deny', $schema: 'x', idleExit: '1m' };
  for (const key of hostConfigKeys) expect(() => parse({ [key]: scalars[key] ?? {} })).not.toThrow();
});

describe('a mistake in one entry is reported, and affects no other entry', () => {
  test('in a server', () => {
    const { settings, fields } = parse({
      mcpServers: { bad: { command: 5 }, odd: { ...server, lasy: 1 }, good: server },
    });
    expect([...settings.mcpServers.keys()]).toEqual(['good']);
    expect(fields).toEqual(['mcpServers.bad.command', 'mcpServers.odd.lasy']);
  });

  test.each([`\${env:TOKEN}`, `Bearer \${file:/run/token}`])(
    'in a server: %s is reported, and used as written',
    (value) => {
      const { settings, told } = parse({ mcpServers: { a: { ...server, env: { A: value } }, b: server } });
      expect([...settings.mcpServers.keys()]).toEqual(['a', 'b']);
      expect(told.map(({ message }) => message)).toEqual([
        'mcpServers.a: has a value with an env: or file: placeholder; placeholders are replaced only in a file, so it is used as written',
      ]);
    },
  );

  test.each([
    [5, 'roles.dev'],
    [{}, 'roles.dev.allow'],
    [{ allow: '*/*' }, 'roles.dev.allow'],
    [{ allow: ['*/*'], deny: ['git/push'] }, 'roles.dev.deny'],
  ])('in a role: with %j the role stays listed and may use nothing', (entry, field) => {
    const { settings, fields } = parse({ roles: { dev: entry, ops: { allow: ['*/*'] } }, unlistedRole: 'allow' });
    expect(fields).toEqual([field]);
    expect(settings.roles).toEqual(
      new Map([
        ['dev', []],
        ['ops', [to('*', '*')]],
      ]),
    );
  });

  test.each([
    [null, ''],
    [{ calls: 5 }, '.window'],
    [{ calls: -1, window: '1m' }, '.calls'],
    [{ calls: 1.5, window: '1m' }, '.calls'],
    [{ calls: 5, window: 'soon' }, '.window'],
    [{ calls: 5, window: '2m', per: 'tool' }, '.per'],
  ])('in a rate limit: with %j no call is allowed', (entry, field) => {
    const { settings, fields } = parse({
      unlistedRole: 'allow',
      budgets: { principals: { ada: entry }, roles: { dev: entry, ops: { calls: 7, window: '1s' } } },
    });
    expect(fields).toEqual([`budgets.principals.ada${field}`, `budgets.roles.dev${field}`]);
    expect(settings.budgets.principals.get('ada')?.calls).toBe(0);
    expect(settings.budgets.roles.get('dev')?.calls).toBe(0);
    expect(settings.budgets.roles.get('ops')).toEqual({ calls: 7, windowMs: 1_000 });
  });

  test('in a group', () => {
    const { settings, fields } = parse({
      mcpServers: { git: server },
      groups: { code: ['git', 'git', 'svn', 5], 'a/b': ['git'], flat: 'git' },
    });
    expect(settings.groups).toEqual(new Map([['code', ['git', 'svn']]]));
    expect(fields).toEqual(['groups.code.1', 'groups.code.2', 'groups.code.3', 'groups.a/b', 'groups.flat']);
  });
});

describe('P-ROLE-6 likely mistakes are reported', () => {
  const git = { mcpServers: { git: server } };

  test('blanks around names are removed, blank names are left out, and of two equal names the later one is used', () => {
    const { settings, told } = parse({
      ...git,
      roles: { ' ': { allow: ['*/*'] }, ' dev ': { allow: ['*/*'] }, dev: { allow: ['git/log'] } },
    });
    expect(settings.roles).toEqual(new Map([['dev', [to('git', 'log')]]]));
    expect(told.map(({ message }) => message)).toEqual([
      'roles: a blank name was left out',
      'roles.dev: the blanks around its name were removed',
      'roles.dev: is given twice; the later one is used',
    ]);
  });

  test('patterns: trimmed, without duplicates, and only valid ones', () => {
    const { settings, fields } = parse({
      ...git,
      roles: { dev: { allow: [' git/log ', 'git/log', '', '  ', 'git', '/log', 'git/', ' / ', 7, 'git/a/b'] } },
    });
    expect(settings.roles?.get('dev')).toEqual([to('git', 'log'), to('git', 'a/b')]);
    expect(fields).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 7, 8].map((i) => `roles.dev.allow.${i}`));
  });

  test('a server that is not configured, and a star that is no wildcard, are reported and enforced as written', () => {
    const { settings, told } = parse({ ...git, roles: { dev: { allow: ['gti/log', '*/log', 'git/re*', 'g*/log'] } } });
    expect(settings.roles?.get('dev')).toEqual([
      ...[to('gti', 'log'), to('*', 'log'), to('git', 're*'), to('g*', 'log')],
    ]);
    expect(told.map(({ message }) => message)).toEqual([
      "roles.dev.allow.0: names the server 'gti', which is not configured; the pattern applies as written",
      "roles.dev.allow.2: 'git/re*' matches only a tool with exactly this name, star included",
      "roles.dev.allow.3: names the server 'g*', which is not configured; the pattern applies as written",
    ]);
  });
});

test('a role or group that names a server as its client wrote it gets the slug to write', () => {
  const names = ['GitHub', 'github.com/upstash/context7', 'Sequential Thinking', '漢字'];
  const mcpServers = Object.fromEntries(names.map((name) => [name, { command: 'x' }]));
  const allow = ['GitHub/*', 'github.com/upstash/context7/a', 'Sequential Thinking/*', 'other/*'];
  const { told } = parse({ mcpServers, roles: { dev: { allow } }, groups: { g: ['GitHub', '漢字'] } });
  expect(told.map(({ hint = '' }) => /did you mean ([^?]*)\? /.exec(hint)?.[1])).toEqual([
    ...['github', 'github-com-upstash-context7', 'sequential-thinking', undefined, 'github'],
    expect.stringMatching(/^server-[0-9a-f]{8}$/),
  ]);
});

test('quoted text cannot control a terminal', () => {
  expect(() => parse({ 'keys\u001b': 1 })).toThrow(
    'keys\\u{1b}: is not a key of the configuration; did you mean keys?',
  );
});

describe('settings of the gateway', () => {
  test('are parsed: keys, the listen address and the log level', () => {
    const keys = { laptop: { hash: `sha256:${'a'.repeat(64)}`, role: 'dev' } };
    const { settings, told } = parse({
      keys,
      roles: { dev: { allow: ['*/*'] } },
      listen: { port: 0, allowedOrigins: ['https://example.com'] },
      log: { level: 'debug' },
    });
    expect(told).toEqual([]);
    expect(settings.keys).toEqual(keys);
    expect(settings.listen).toEqual({
      host: '127.0.0.1',
      port: 0,
      allowedHosts: [],
      allowedOrigins: ['https://example.com'],
      drain: '10s',
    });
    expect(settings.log).toEqual({ level: 'debug' });
  });

  test.each([
    [{ keys: [] }, 'keys'],
    [{ listen: { port: 65_536 } }, 'listen.port'],
    [{ listen: { hosts: [] } }, 'listen.hosts'],
    [{ log: { level: 'loud' } }, 'log.level'],
    [{ $schema: 5 }, '$schema'],
  ])('with a mistake make the whole configuration unusable, and the error has their path: %j', (config, field) => {
    expect(() => parse(config)).toThrow(expect.objectContaining({ details: expect.objectContaining({ field }) }));
  });
});

test('E10 a role with too long a list may use nothing, and the other roles are read', () => {
  const allow = Array.from({ length: 10_001 }, (_, i) => `*/t${i}`);
  const { settings, fields } = parse({ roles: { dev: { allow }, guest: { allow: ['*/*'] } } });
  expect(fields).toEqual(['roles.dev.allow', 'roles.dev']);
  expect([settings.roles?.get('dev'), settings.roles?.get('guest')]).toEqual([[], [to('*', '*')]]);
});

test('E10 only the entry that makes a parser throw is disabled, with the reason', () => {
  const { settings, told } = parse({ mcpServers: { bad: { url: 'example.com/mcp' }, git: server } });
  expect([[...settings.mcpServers.keys()], [...settings.unusable]]).toEqual([
    ['git'],
    [['bad', { error: told[0], label: 'bad' }]],
  ]);
  expect(told[0]?.message).toBe(
    'mcpServers.bad.url: must be an http or https URL: write https://example.com instead of example.com',
  );
});

test('a role that is not listed is reported in keys and budgets, unless unlisted roles are allowed', () => {
  const config = {
    roles: { dev: { allow: ['*/*'] } },
    keys: { ann: { hash: `sha256:${'a'.repeat(64)}`, role: 'dve' } },
    budgets: { roles: { dev: { calls: 1, window: '1m' }, devs: { calls: 1, window: '1m' } } },
  };
  expect(parse(config).told.map(({ message }) => message)).toEqual([
    "keys.ann.role: role 'dve' is not listed: this key may use nothing",
    "budgets.roles.devs: role 'devs' is not listed: this budget limits no caller",
  ]);
  expect(parse({ ...config, unlistedRole: 'allow' }).told).toEqual([]);
});
