/**
 * Roles and budgets of the configuration, for calls, lists and spawns of a complete host.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostConfig } from '../../src/host/host-interface.js';
import type { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import type { Principal } from '../../src/policy/operation.js';
import { embedder } from '../../src/policy/operation.js';
import { failureOf } from '../fakes/policy-call.js';
import { stdioFixtures } from '../fixtures/fixture-servers.js';
import { outcomeOf } from './harness.js';

const raw = stdioFixtures.find(({ name }) => name === 'raw-stdio-legacy');
if (!raw) throw new Error('no fixture');
const { command, args, env } = raw;
const server = { command, args, env };

let host: Host;
afterEach(() => host?.close());

const open = async (config: HostConfig, clock?: FakeClock) => {
  host = await createHost(config, clock ? { clock } : {});
  return host;
};
const as = (id: string, role?: string): { principal: Principal } => ({ principal: { id, role, scopes: [] } });

describe('roles', () => {
  const roles = { dev: { allow: ['git/log', 'web/*'] }, none: { allow: [] } };

  test('a call, a list and a discovery give a principal exactly what its role allows', async () => {
    await open({ mcpServers: { a: server, b: server }, roles: { dev: { allow: ['a/echo', 'a/no_such'] } } });
    const dev = as('ada', 'dev');
    expect((await host.tools('a', dev)).map(({ name }) => name)).toEqual(['echo']);
    expect(await outcomeOf(host.tools('b', dev))).toBe('denied');
    expect(await outcomeOf(host.call('a', 'echo', { text: 'x' }, dev))).toBe('ok');
    expect(await outcomeOf(host.call('a', 'add', { a: 1, b: 1 }, dev))).toBe('denied');
    const found = await host.discover({ ...dev, wake: true });
    expect(found.map((each) => ('tool' in each ? `${each.server}/${each.tool}` : each.server))).toEqual(['a/echo']);
  });

  test('a refusal is reported for every action: a call, a list, a resource, a discovery that wakes, a spawn', async () => {
    await open({ mcpServers: { a: server, b: server }, roles: { dev: { allow: ['a/echo'] } } });
    const told: unknown[] = [];
    host.on('denied', ({ server: of, action, tool, principal: { id }, requestId }) =>
      told.push([of, action, tool, id, requestId !== undefined]),
    );
    const dev = as('ada', 'dev');
    await outcomeOf(host.call('b', 'echo', {}, dev));
    await outcomeOf(host.list('b', 'prompts/list', dev));
    await outcomeOf(host.read('a', 'file:///x', dev));
    await host.discover(dev);
    await host.discover({ ...dev, wake: true });
    host.setAllowlist(({ action }) => (action === 'spawn' ? { allow: false, reason: 'closed' } : { allow: true }));
    await outcomeOf(host.spawn({ name: 'c', ...server }));
    expect(told).toEqual([
      ['b', 'call', 'echo', 'ada', true],
      ['b', 'list', undefined, 'ada', false],
      ['a', 'call', undefined, 'ada', false],
      ['b', 'list', undefined, 'ada', false],
      ['c', 'spawn', undefined, 'embedder', false],
    ]);
  });

  test.each([
    ['dev', 'git', 'log', 'server_not_found'],
    ['dev', 'git', 'push', 'denied'],
    ['dev', 'web', 'anything', 'server_not_found'],
    ['none', 'git', 'log', 'denied'],
    ['other', 'git', 'log', 'denied'],
    [undefined, 'git', 'log', 'denied'],
  ])('role %s calling %s/%s: %s', async (role, name, tool, code) => {
    await open({ roles });
    expect(await outcomeOf(host.call(name, tool, {}, as('ada', role)))).toBe(code);
  });

  test('AC-H8 the embedder has no role; principals that it names have one, even with its own name', async () => {
    await open({ roles, unlistedRole: 'deny' });
    expect(await outcomeOf(host.call('git', 'push'))).toBe('server_not_found');
    expect(await outcomeOf(host.call('git', 'push', {}, { principal: embedder }))).toBe('server_not_found');
    expect(await outcomeOf(host.call('git', 'push', {}, { principal: { ...embedder } }))).toBe('denied');
    expect(await outcomeOf(host.spawn({ name: 'late', ...server }, { lazy: true }))).toBe('ok');
  });

  test('X9 no other principal has the id of the embedder, with roles or without, also with guards', async () => {
    await open({});
    const likeness = { principal: { ...embedder } };
    for (const guard of [[], [() => ({ allow: true }) as const]]) {
      host.setAllowlist(...guard);
      const error = await failureOf(host.call('git', 'log', {}, likeness));
      expect([error.code, error.message]).toEqual(['denied', expect.stringContaining("'embedder' is reserved")]);
      expect(await outcomeOf(host.list('git', 'tools/list', likeness))).toBe('denied');
      expect(await outcomeOf(host.read('git', 'a:b', likeness))).toBe('denied');
      expect(await outcomeOf(host.call('git', 'log'))).toBe('server_not_found');
    }
  });

  test('guards of the embedder apply in addition to roles, and removing them leaves the roles', async () => {
    await open({ roles });
    const dev = as('ada', 'dev');
    host.setAllowlist(({ tool }) => (tool === 'log' ? { allow: false, reason: 'not today' } : { allow: true }));
    expect(await outcomeOf(host.call('git', 'log', {}, dev))).toBe('denied');
    expect(await outcomeOf(host.call('git', 'log'))).toBe('denied');
    expect(await outcomeOf(host.call('git', 'push', {}, dev))).toBe('denied');
    expect(await outcomeOf(host.call('web', 'get', {}, dev))).toBe('server_not_found');
    host.setAllowlist();
    expect(await outcomeOf(host.call('git', 'log', {}, dev))).toBe('server_not_found');
    expect(await outcomeOf(host.call('git', 'push', {}, dev))).toBe('denied');
  });

  test('without roles and without unlistedRole only callers with a role are refused', async () => {
    await open({});
    expect(await outcomeOf(host.call('git', 'log', {}, as('ada')))).toBe('server_not_found');
    expect(await outcomeOf(host.call('git', 'log', {}, as('ada', 'dev')))).toBe('denied');
    host.setAllowlist(() => ({ allow: true }));
    expect(await outcomeOf(host.call('git', 'log', {}, as('ada', 'dev')))).toBe('denied');
    await host.close();
    await open({ unlistedRole: 'allow' });
    expect(await outcomeOf(host.call('git', 'log', {}, as('ada', 'dev')))).toBe('server_not_found');
  });

  test('unlistedRole alone takes effect too', async () => {
    await open({ unlistedRole: 'deny' });
    expect(await outcomeOf(host.call('git', 'log', {}, as('ada', 'dev')))).toBe('denied');
  });
});

test('E22 a role that is not listed is named by the host and by its explanation', async () => {
  await open({ mcpServers: { git: { ...server, enabled: false } }, roles: { dev: { allow: ['*/*'] } } });
  expect([host.isUnlistedRole('dev'), host.isUnlistedRole('ops')]).toEqual([false, true]);
  const { visible, rule, call } = host.explain('git', undefined, { id: 'role:ops', role: 'ops', scopes: [] });
  expect([visible, rule]).toEqual([false, expect.stringContaining("role 'ops' is not listed")]);
  expect(call).toMatchObject({
    outcome: 'refused',
    code: 'denied',
    hint: expect.stringContaining('list it under roles'),
  });
  await host.reconfigure({ unlistedRole: 'allow' });
  expect(host.isUnlistedRole('ops')).toBe(false);
});

describe('budgets', () => {
  const mcpServers = { x: { ...server, enabled: false } };

  test('a budget of the configuration refuses calls above it until the end of its window', async () => {
    const clock = new FakeClock();
    await open(
      {
        mcpServers,
        unlistedRole: 'allow',
        budgets: { principals: { ada: { calls: 1, window: '1m' } }, roles: { dev: { calls: 2, window: '10s' } } },
      },
      clock,
    );
    const three = async (who: { principal: Principal }) =>
      [
        await outcomeOf(host.call('x', 'y', {}, who)),
        await outcomeOf(host.call('x', 'y', {}, who)),
        await outcomeOf(host.call('x', 'y', {}, who)),
      ].filter((code) => code === 'budget_exceeded').length;
    expect([await three(as('ada', 'dev')), await three(as('bob', 'dev')), await three(as('eve'))]).toEqual([2, 1, 0]);
    clock.advance(10_000);
    expect([await three(as('ada', 'dev')), await three(as('bob', 'dev'))]).toEqual([3, 1]);
    clock.advance(50_000);
    expect(await three(as('ada', 'dev'))).toBe(2);
  });

  test('a call that its role denies is not charged', async () => {
    await open({
      mcpServers,
      roles: { dev: { allow: ['x/y'] } },
      budgets: { roles: { dev: { calls: 1, window: '1m' } } },
    });
    expect(await outcomeOf(host.call('x', 'z', {}, as('ada', 'dev')))).toBe('denied');
    expect(await outcomeOf(host.call('x', 'y', {}, as('ada', 'dev')))).toBe('server_disabled');
    expect(await outcomeOf(host.call('x', 'y', {}, as('ada', 'dev')))).toBe('budget_exceeded');
  });
});

test('groups are stored', async () => {
  await open({ mcpServers: { a: { ...server, lazy: true } }, groups: { all: ['a'] } });
  expect(host.groups).toEqual(new Map([['all', ['a']]]));
});

test('a configuration that cannot be used is an error with its path, and leaves nothing behind', async () => {
  const problems: HostError[] = [];
  const config = { mcpServers: { a: { ...server, lazy: false } }, rolls: {} } as HostConfig;
  const opening = createHost(config, { onProblem: (problem) => problems.push(problem as HostError) });
  await expect(opening).rejects.toMatchObject({ code: 'invalid_spec', details: { field: 'rolls' } });
  expect(problems).toEqual([]);
});
