/**
 * Every field of the configuration with hostile values, through the library and through the text of a file. Whatever is in an
 * entry, that entry alone is lost, and is shown as a disabled server; whatever is elsewhere is taken, or refused as a whole with an
 * `invalid_spec` error. Nothing else is ever thrown.
 */
import { expect, test } from 'vitest';
import { parseConfigText } from '../../src/config/config-file.js';
import { entryTables } from '../../src/config/copy-config.js';
import { parseHostConfig } from '../../src/config/host-config.js';
import { parseKeys } from '../../src/config/keys.js';
import { fillPlaceholders } from '../../src/config/placeholders.js';
import { Host } from '../../src/host/host.js';
import type { HostConfig } from '../../src/host/host-interface.js';
import { HostError, isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { randomInt, seededRandom } from '../../src/kernel/random.js';
import { Connector } from '../../src/session/connector.js';
import { hostConfigJsonSchema } from '../docs/json-schema.js';
import { countFor } from '../tier.js';
import { nameFor, plainFor, rawJson, valueFor } from './configuration-values.js';

const valuesTotal = countFor(250, 10_000);
const hash = `sha256:${'0'.repeat(64)}`;

/** Entries called `fuzzed` are the ones that are changed. */
const base = () => ({
  mcpServers: {
    ok: { command: 'node' },
    remote: { url: 'https://example.com/mcp' },
    fuzzed: { command: 'node' } as Record<string, unknown>,
  },
  roles: { reader: { allow: ['ok/*'] }, fuzzed: { allow: ['ok/*'] } },
  budgets: {
    principals: { ann: { calls: 5, window: '1m' }, fuzzed: { calls: 5, window: '1m' } },
    roles: { reader: { calls: 5, window: '1m' }, fuzzed: { calls: 5, window: '1m' } },
  },
  groups: { all: ['ok'], fuzzed: ['ok'] },
  keys: { ann: { hash: hash.replace('00', '11'), role: 'reader' }, fuzzed: { hash, role: 'reader' } },
});

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

/** Every path of the schema, once each; members of tables are called `fuzzed`. */
function pathsOf(schema: Schema, at: readonly string[] = []): string[][] {
  const inside = [
    ...Object.entries(schema.properties ?? {}).flatMap(([name, member]) => pathsOf(member, [...at, name])),
    ...(typeof schema.additionalProperties === 'object' ? pathsOf(schema.additionalProperties, [...at, 'fuzzed']) : []),
    ...(schema.items ? pathsOf(schema.items, [...at, '0']) : []),
    ...(schema.anyOf ?? []).flatMap((each) => pathsOf(each, at)),
  ];
  const all = [...(at.length === 0 ? [] : [[...at]]), ...inside];
  return [...new Map(all.map((path) => [path.join('.'), path])).values()];
}

const paths = pathsOf(hostConfigJsonSchema() as Schema);
const isInEntry = (path: readonly string[]): boolean =>
  entryTables.some((table) => path.join('.').startsWith(`${table}.fuzzed`));

function set(root: object, [name, ...rest]: readonly string[], value: unknown): void {
  const holder = root as Record<string, unknown>;
  if (rest.length === 0)
    Object.defineProperty(holder, name as string, { value, enumerable: true, configurable: true, writable: true });
  else {
    const inner = typeof holder[name as string] === 'object' ? holder[name as string] : undefined;
    holder[name as string] = inner ?? (rest[0] === '0' ? [] : {});
    set(holder[name as string] as object, rest, value);
  }
}

function readWhole(config: unknown) {
  const { keys, ...settings } = parseHostConfig(config, () => {});
  return { ...settings, keys: parseKeys(keys, () => {}) };
}

/** The expected state of the unchanged entries after every read. */
function expectOthers(config: unknown): void {
  const { roles, budgets, groups, keys, mcpServers } = readWhole(config);
  const kept = [
    ...[mcpServers.has('ok'), mcpServers.has('remote'), roles?.get('reader')?.length === 1],
    ...[budgets.principals.get('ann')?.calls === 5, budgets.roles.get('reader')?.calls === 5],
    ...[groups.get('all')?.length === 1, keys.has('ann')],
  ];
  expect(kept).toEqual(kept.map(() => true));
}

const connectFails = async (): Promise<never> => {
  throw new HostError('connect_failed', 'there are no servers here', { execution: 'not_executed' });
};
const transports = { stdio: connectFails, pool: () => ({ request: connectFails, close: async () => {} }) as never };
const clock = new FakeClock();

/** `check`: what must be true of the open host. */
async function openHost(config: unknown, check: (host: Host) => Promise<void>): Promise<void> {
  const host = new Host({ clock, onProblem: () => {} }, (options) => new Connector({ ...options, transports }));
  try {
    await host.open(config as HostConfig);
    await check(host);
  } finally {
    await host.close();
  }
}

async function expectRows(host: Host): Promise<void> {
  const rows = new Map(host.status().map((row) => [row.name, row]));
  expect([rows.get('ok')?.state, rows.get('remote')?.state]).toEqual(['registered', 'registered']);
  for (const { name, state, lastError } of rows.values()) {
    if (state !== 'disabled' || host.known(name)?.definition.problem === undefined) continue;
    expect(lastError).toMatchObject({
      code: 'invalid_spec',
      message: expect.stringContaining('mcpServers.') as string,
    });
    await expect(host.call(name, 'any')).rejects.toMatchObject({ code: 'server_disabled' });
  }
}

/** Returns undefined, or a HostError that refuses the whole configuration. Any other error is thrown. */
async function refusalOf(run: () => Promise<void> | void): Promise<HostError | undefined> {
  try {
    await run();
    return undefined;
  } catch (error) {
    if (isHostError(error) && error.code === 'invalid_spec') return error;
    throw error;
  }
}

test(`E10 ${valuesTotal} values in every field: no exception, and no other entry is lost`, {
  timeout: 300_000,
}, async () => {
  const seed = Number(process.env.SEED ?? randomInt(Math.random, 1, 2 ** 31));
  console.log(`seed ${seed}`);
  const random = seededRandom(seed);
  expect(paths.length).toBeGreaterThan(60);
  for (let i = 0; i < valuesTotal; i++) {
    const path = paths[i % paths.length] as string[];
    const config = base();
    if (random() < 0.3) config.mcpServers.fuzzed = { url: 'https://example.com/mcp' };
    set(config, path, valueFor(random));
    const isEntry = isInEntry(path);
    const refusal = await refusalOf(async () => {
      if (isEntry) expectOthers(config);
      else readWhole(config);
      await openHost(config, isEntry ? expectRows : async () => {});
    });
    if (isEntry) expect(refusal, `seed ${seed}, value ${i}: ${path.join('.')}`).toBeUndefined();
  }
});

test('E10 entries of any name: no exception, and no other entry is lost', async () => {
  const seed = Number(process.env.SEED ?? randomInt(Math.random, 1, 2 ** 31));
  console.log(`seed ${seed}`);
  const random = seededRandom(seed);
  for (let i = 0; i < countFor(60, 2_000); i++) {
    const config = base();
    const table = entryTables[i % entryTables.length] as string;
    set(config, [...table.split('.'), nameFor(random)], valueFor(random));
    expectOthers(config);
    await openHost(config, expectRows);
  }
});

test('E10 the same in the text of a file', async () => {
  const seed = Number(process.env.SEED ?? randomInt(Math.random, 1, 2 ** 31));
  console.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const marker = '@@fuzzed@@';
  for (let i = 0; i < countFor(150, 5_000); i++) {
    const path = paths[randomInt(random, 0, paths.length - 1)] as string[];
    const isEntry = isInEntry(path);
    const config = base();
    set(config, path, marker);
    const raw = random() < 0.3 ? rawJson[randomInt(random, 0, rawJson.length - 1)] : JSON.stringify(plainFor(random));
    const text = JSON.stringify(config).replace(JSON.stringify(marker), () => raw ?? 'null');
    const refusal = await refusalOf(() => {
      const { config: filled } = fillPlaceholders(parseConfigText(text, 'hostler.json'), {
        env: process.env,
        folder: '/',
      });
      if (isEntry) expectOthers(filled);
      else readWhole(filled);
    });
    if (isEntry) expect(refusal, `seed ${seed}, value ${i}: ${path.join('.')} = ${raw}`).toBeUndefined();
  }
});
