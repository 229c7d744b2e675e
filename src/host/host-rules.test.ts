import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseHostConfig } from '../config/host-config.js';
import { denial } from '../policy/allowlist.js';
import { embedder, type Principal } from '../policy/operation.js';
import { HostRules } from './host-rules.js';

const settings = (config: object) =>
  parseHostConfig(config, (problem) => {
    throw problem;
  });

test('E5 roles, or guards of the embedder, may give callers different rights; a reload that adds or removes them applies at once', () => {
  const rules = new HostRules(() => undefined);
  const seen = [rules.hasRoles];
  rules.configure(settings({ mcpServers: {} }));
  seen.push(rules.hasRoles);
  rules.configure(settings({ mcpServers: {}, roles: { dev: { allow: ['*/*'] } } }));
  seen.push(rules.hasRoles);
  rules.configure(settings({ mcpServers: {}, unlistedRole: 'allow' }));
  seen.push(rules.hasRoles);
  rules.configure(settings({ mcpServers: {} }));
  seen.push(rules.hasRoles);
  rules.setOwn([() => ({ allow: true })]);
  seen.push(rules.hasRoles);
  expect(seen).toEqual([false, false, true, true, false, true]);
});

const twoServers = { a: { command: 'a' }, b: { command: 'b' } };
const allow = fc.uniqueArray(fc.constantFrom('a/*', 'b/*', '*/*', 'a/t', 'a/u', '*/t'), { maxLength: 3 });
const configurations = fc.record(
  {
    roles: fc.dictionary(fc.constantFrom('x', 'y', 'z'), fc.record({ allow })),
    unlistedRole: fc.constantFrom('deny', 'allow'),
  },
  { requiredKeys: [] },
);
const principals = fc.record({
  id: fc.constantFrom('ann', 'bob', embedder.id),
  role: fc.option(fc.constantFrom('x', 'y', 'z', 'none', ''), { nil: undefined }),
  scopes: fc.subarray(['s']),
});

test('principals with the same access key are allowed the same', () => {
  let shared = 0;
  const guards = [
    ({ principal: { id, scopes } }: { principal: Principal }) => ({ allow: id !== 'bob' || !!scopes[0] }),
  ];
  fc.assert(
    fc.property(configurations, fc.array(principals, { minLength: 12 }), fc.boolean(), (config, some, isGuarded) => {
      const rules = new HostRules(() => undefined);
      rules.configure(settings({ mcpServers: twoServers, ...config }));
      if (isGuarded) rules.setOwn(guards as Parameters<HostRules['setOwn']>[0]);
      const rights = new Map<string, string>();
      for (const principal of [embedder, ...some]) {
        const verdicts = ['a', 'b'].flatMap((server) =>
          [undefined, 't', 'u'].map((tool) => {
            const action = tool === undefined ? 'list' : 'call';
            return denial(() => rules.guards, { principal, server, tool, action }) === undefined;
          }),
        );
        const own = `${principal.role === undefined} ${verdicts.join(' ')}`;
        const key = rules.accessKey(principal);
        if (rights.has(key)) shared++;
        expect(rights.get(key) ?? own).toBe(own);
        rights.set(key, own);
      }
    }),
    { seed: 14, numRuns: 300 },
  );
  expect(shared).toBeGreaterThan(1_000);
});

test('roles with the same rules share an access key, in any order and until the rules change', () => {
  const rules = new HostRules(() => undefined);
  const keyOf = (role: string | undefined, id = 'ann') => rules.accessKey({ id, role, scopes: [] });
  rules.configure(
    settings({
      mcpServers: twoServers,
      roles: { x: { allow: ['a/t', 'b/*'] }, y: { allow: ['b/*', 'a/t'] }, z: { allow: [] } },
    }),
  );
  expect([keyOf('x') === keyOf('y', 'bob'), keyOf('x') === keyOf('z'), keyOf('x') === keyOf(undefined)]).toEqual([
    ...[true, false, false],
  ]);
  rules.configure(settings({ mcpServers: twoServers, roles: { x: { allow: ['a/t'] }, y: { allow: ['b/*', 'a/t'] } } }));
  expect(keyOf('x') === keyOf('y')).toBe(false);
});
