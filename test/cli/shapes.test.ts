/** AC-E15: each `--json` output has a published shape, and real outputs have that shape. `UPDATE=1` adds new shapes to the golden file. */
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.js';
import { jsonSchemaOf, jsonShapes } from '../../src/cli/json-shapes.js';
import { eventually } from '../eventually.js';
import { fixtureEntry, Running, Workplace } from './hostler-process.js';

const golden = new URL('./shapes.json', import.meta.url);
const names = Object.keys(jsonShapes) as (keyof typeof jsonShapes)[];
const place = new Workplace();

beforeAll(async () => {
  place.configure({
    mcpServers: { fixture: fixtureEntry(), wrong: { comand: 'x' }, missing: { command: 'no-such-command-here' } },
    roles: { reader: { allow: ['fixture/echo'] } },
    budgets: { roles: { reader: { calls: 5, window: '1m' } } },
  });
  await place.up().ready();
  await eventually('it is parked', async () => (await place.hostler('status')).stdout.includes('parked'));
});
afterAll(() => place.remove());

test('AC-E15 every shape is as in the golden file: a removed or retyped member needs a new version', () => {
  const shapes = Object.fromEntries(names.map((name) => [name, jsonSchemaOf(name)]));
  if (process.env.UPDATE) writeFileSync(golden, `${JSON.stringify(shapes, null, 2)}\n`);
  expect(shapes).toEqual(JSON.parse(readFileSync(golden, 'utf8')));
});

test('AC-E15 every command has --json and a shape, and hostler schema lists all of them', async () => {
  for (const [name, [, load]] of Object.entries(commands)) {
    expect([name, Object.keys((await load()).options).includes('json')]).toEqual([name, true]);
    expect([name, names.some((shape) => shape.split(' ')[0] === name)]).toEqual([name, true]);
  }
  const { stdout } = await new Running(['schema']).closed;
  expect(Object.keys((JSON.parse(stdout) as { shapes: object }).shapes)).toEqual(names);
});

test.each<[keyof typeof jsonShapes, ...string[]]>([
  ['status', 'status'],
  ['tools', 'tools'],
  ['call', 'call', 'fixture.echo', 'text=x'],
  ['logs', 'logs', '--tail', '5'],
  ['why', 'why', 'fixture/echo', '--role', 'reader'],
  ['why', 'why', 'missing'],
  ['doctor', 'doctor'],
  ['disable', 'disable', 'fixture/add'],
  ['enable', 'enable', 'fixture/add'],
  ['stop', 'stop', 'fixture'],
  ['start', 'start', 'fixture'],
  ['reload', 'reload', 'fixture'],
  ['version', 'version'],
])('AC-E15 the output of %s has its shape', async (name, command, ...args) => {
  const { stdout } = await place.hostler(String(command), ...args, '--json');
  const { error } = jsonShapes[name].safeParse(JSON.parse(stdout));
  expect(error?.issues ?? []).toEqual([]);
});

test.each<[keyof typeof jsonShapes, ...string[]]>([
  ['key add', 'key', 'add', 'ann', '--role', 'reader'],
  ['key list', 'key', 'list'],
  ['key revoke', 'key', 'revoke', 'ann'],
  ['key nats', 'key', 'nats'],
  ['trust', 'trust'],
  ['trust --list', 'trust', '--list'],
  ['help', 'help'],
  ['hostler'],
  ['schema', 'schema', 'key'],
])('AC-E15 the output of %s has its shape, without a running Hostler', async (name, ...args) => {
  const own = args[0] === 'key' ? ['--config', place.config] : args.at(-1) === 'trust' ? [place.config] : [];
  const { stdout } = await new Running([...args, ...own, '--json'], { HOSTLER_DATA_DIR: place.dataDir }).closed;
  const { error } = jsonShapes[name].safeParse(JSON.parse(stdout));
  expect(error?.issues ?? []).toEqual([]);
});
