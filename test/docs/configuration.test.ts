/**
 * docs/configuration.md lists exactly the keys that the parser accepts, each with its default.
 */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import * as z from 'zod/mini';
import { brokerEntry } from '../../src/config/broker-settings.js';
import { clientKeys, serverTables } from '../../src/config/client-keys.js';
import { parseHostConfig, rateLimitEntry, roleEntry } from '../../src/config/host-config.js';
import { keyEntry } from '../../src/config/keys.js';
import { hostConfigKeys } from '../../src/config/known-keys.js';
import { listenEntry, logEntry } from '../../src/config/listen-settings.js';
import { parseServerDefinition, treatment } from '../../src/config/server-definition.js';
import { http, stdio } from '../../src/config/server-spec.js';
import { BASELINE } from '../../src/transports/environment.js';

const page = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');

/** The default of each key in one section, as written; `none` if a key has no default. */
function tableOf(title: string): Map<string, string> {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${title}\n`)) ?? '';
  const rows = [...section.matchAll(/^\| `([^`]+)` +\| (?:`([^`]+)`|(none)) +\|/gm)];
  return new Map(rows.map(([, key, value, none]) => [key as string, value ?? (none as string)]));
}

type Schema = { properties?: Record<string, Schema>; default?: unknown };

/** The default of each leaf in the schema of an object, as JSON, by path. */
function keysOf(schema: z.ZodMiniType, prefix = ''): [string, string][] {
  const leaves = ({ properties = {} }: Schema, above: string): [string, string][] =>
    Object.entries(properties).flatMap(([key, each]) =>
      each.properties
        ? leaves(each, `${above}${key}.`)
        : [[above + key, each.default === undefined ? 'none' : JSON.stringify(each.default)]],
    );
  return leaves(z.toJSONSchema(schema, { io: 'input' }) as Schema, prefix);
}

test('the top level', () => {
  const documented = tableOf('The top level');
  expect([...documented.keys()]).toEqual([...hostConfigKeys]);
  const told: unknown[] = [];
  const parse = (config: unknown) => parseHostConfig(config, (problem) => told.push(problem));
  for (const [key, value] of documented)
    expect(parse(value === 'none' ? {} : { [key]: JSON.parse(value) }), key).toEqual(parse({}));
  // A key without a default differs from every possible default.
  expect([parse({}).roles, parse({}).unlistedRole, told]).toEqual([undefined, undefined, []]);
});

test('how a server is reached', () => {
  const taken = new Map([...keysOf(stdio), ...keysOf(http)]);
  taken.delete('name');
  expect(tableOf('A server: how it is reached')).toEqual(taken);
});

test('how a server is treated', () => {
  expect(tableOf('A server: how it is treated')).toEqual(new Map(keysOf(treatment)));
  const { isLazy, timeouts, pins } = parseServerDefinition('a', { command: 'node' }, true);
  expect([isLazy, timeouts.startMs, pins]).toEqual([true, 30_000, { onFirstSight: 'warn', onChange: 'block' }]);
});

test('the environment of a server', () => {
  const [, section = ''] = page.split('### The environment of a server\n');
  for (const name of BASELINE)
    expect([name, section.split('\n## ')[0]]).toEqual([name, expect.stringContaining(`\`${name.toUpperCase()}\``)]);
});

test('the keys of clients', () => {
  const section = page.split(/^## /m).find((text) => text.startsWith('Files of MCP clients\n')) ?? '';
  for (const [key, { to }] of clientKeys) {
    const row = section.split('\n').find((line) => line.startsWith('|') && line.split('|')[1]?.includes(`\`${key}\``));
    expect([key, row]).toEqual([key, expect.stringContaining(`\`${to}\``)]);
  }
  for (const table of serverTables) expect(page).toContain(`\`${table}\``);
});

test('roles and budgets', () => {
  expect(tableOf('Roles')).toEqual(new Map(keysOf(roleEntry, 'roles.<role>.')));
  const rateLimits = ['principals.<id>', 'roles.<role>'].flatMap((of) => keysOf(rateLimitEntry, `budgets.${of}.`));
  expect(tableOf('Budgets')).toEqual(new Map(rateLimits));
});

test('the broker', () => {
  expect(tableOf('Broker')).toEqual(new Map(keysOf(brokerEntry, 'broker.')));
});

test('keys, addresses and limits', () => {
  expect(tableOf('Keys')).toEqual(new Map(keysOf(keyEntry, 'keys.<name>.')));
  expect(tableOf('Listen and log')).toEqual(new Map([...keysOf(listenEntry, 'listen.'), ...keysOf(logEntry, 'log.')]));
});

test('the example is accepted without a remark', () => {
  const told: unknown[] = [];
  const [, example = ''] = /^```json\n([\s\S]*?)^```/m.exec(page) ?? [];
  const { mcpServers, roles, groups } = parseHostConfig(JSON.parse(example), (problem) => told.push(problem));
  expect([told, mcpServers.size, roles?.size, groups.size]).toEqual([[], 2, 2, 1]);
});
