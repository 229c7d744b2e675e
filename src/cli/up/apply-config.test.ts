import { expect, test } from 'vitest';
import { countFor } from '../../../test/tier.js';
import { parseServing } from '../../config/host-config.js';
import { digestOf, parseKeys } from '../../config/keys.js';
import { listenEntry } from '../../config/listen-settings.js';
import { createGateway, defaultParts } from '../../gateway/gateway.js';
import { Keyring } from '../../gateway/keys/keyring.js';
import { Host } from '../../host/host.js';
import type { HostConfig } from '../../host/host-interface.js';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { type Random, randomInt, seededRandom } from '../../kernel/random.js';
import { embedder } from '../../policy/operation.js';
import { Connector } from '../../session/connector.js';
import { applyConfig } from './apply-config.js';

const servers = ['s1', 's2', 's3'];
const tools = ['t1', 't2', 't3'];
const roles = ['r1', 'r2', 'r3'];
const holders = ['ann', 'bob', 'cyd', 'dan'];
const listen = listenEntry.parse({});

const pick = <T>(random: Random, of: readonly T[]): T => of[randomInt(random, 0, of.length - 1)] as T;
const some = <T>(random: Random, of: readonly T[]): T[] => of.filter(() => random() < 0.5);

/** Each holder always has the same key. The file decides whether a key is valid, and which rights it has. */
function randomFile(random: Random): HostConfig {
  const server = () => ({
    command: pick(random, ['one', 'two']),
    ...(random() < 0.5 ? { tools: { allow: some(random, tools), deny: some(random, tools.slice(1)) } } : {}),
    ...(random() < 0.1 ? { comand: 'an entry that cannot be read' } : {}),
  });
  const patterns = [...servers.flatMap((name) => [`${name}/*`, ...tools.map((tool) => `${name}/${tool}`)]), '*/*'];
  const role = () => ({ allow: some(random, patterns).slice(0, 2) });
  const key = (name: string) => ({
    hash: `sha256:${digestOf(name)}`,
    ...(random() < 0.8 ? { role: pick(random, roles) } : {}),
  });
  const table = <T>(names: readonly string[], make: (name: string) => T) =>
    Object.fromEntries(some(random, names).map((name) => [name, make(name)]));
  return {
    mcpServers: table(servers, server),
    ...(random() < 0.9 ? { roles: table(roles, role) } : {}),
    ...(random() < 0.3 ? { unlistedRole: pick(random, ['allow', 'deny']) } : {}),
    keys: table(holders, key),
  };
}

/** A host, its gateway and its workers, which know the same keys; nothing is started. */
async function open(config: HostConfig) {
  const clock = new FakeClock();
  const neverConnects = () => new Promise<never>(() => {});
  const transports = { stdio: neverConnects, pool: neverConnects as never };
  const options = { clock, learnAtBoot: false, onProblem: () => {} };
  const host = new Host(options, (own) => new Connector({ ...own, transports }));
  let keyring: Keyring | undefined;
  const parts = {
    ...defaultParts,
    Keyring: class extends Keyring {
      constructor(options: ConstructorParameters<typeof Keyring>[0]) {
        super(options);
        keyring = this;
      }
    },
  };
  const { keys } = parseServing(config);
  const settings = { listen, keys, auth: 'key', version: '0' } as const;
  const gateway = await createGateway({ host, settings, clock, parts, onProblem: () => {} });
  await host.open(config);
  const workers = new Keyring({ clock, keys: defaultParts.parseKeys(keys, () => {}) });
  /** The rights of the holder, as `who server/tool`, at the gateway and as a worker. */
  const rightsOf = (holder: string): string[] =>
    [keyring, workers].flatMap((ring, i) => {
      const principal = ring?.authenticate(`Bearer ${holder}`);
      if (!principal) return [];
      return host
        .names()
        .filter((server) => host.known(server)?.state !== 'disabled')
        .flatMap((server) =>
          tools.filter((tool) => host.isAllowed(principal, server, tool)).map((tool) => [server, tool]),
        )
        .map(
          ([server, tool]) => `${i === 0 ? 'client' : 'worker'} ${server}/${tool} of ${commandOf(host, `${server}`)}`,
        );
    });
  return { host, gateway, workers, rightsOf };
}

function commandOf(host: Host, server: string): string {
  const { definition } = host.known(server) ?? {};
  return definition && 'command' in definition.spec ? definition.spec.command : 'nothing';
}

const isSubset = (some: readonly string[], of: readonly string[]): boolean => some.every((each) => of.includes(each));

test('E11 while an edit is applied, no key has more rights than in the old or the new file', {
  timeout: 300_000,
}, async () => {
  const seed = Number(process.env.SEED ?? randomInt(Math.random, 1, 2 ** 31));
  const random = seededRandom(seed);
  let looks = 0;
  for (let i = 0; i < countFor(25, 5_000); i++) {
    const [before, after] = [randomFile(random), randomFile(random)];
    const running = await open(before);
    const { host, gateway, workers, rightsOf } = running;
    const old = new Map(holders.map((holder) => [holder, rightsOf(holder)]));
    const seen = new Map(holders.map((holder) => [holder, new Set<string>()]));
    const look = () => {
      looks++;
      for (const holder of holders) seen.get(holder)?.add(JSON.stringify(rightsOf(holder)));
    };
    host.on('any', look);
    host.onKnownChanged(look);
    const prepareKeys = (keys: object) => async () => {
      workers.replace(parseKeys(keys, () => {}));
      look();
      for (let turns = 0; turns < 5; turns++) await Promise.resolve();
    };
    let isDone = false;
    const edit = { config: after, keys: parseServing(after).keys, listen, swap: () => {} };
    const applying = applyConfig({ host, gateway, workers: { prepareKeys } }, edit).then(
      async ({ atBroker }) => atBroker,
    );
    void applying.finally(() => {
      isDone = true;
    });
    for (look(); !isDone; look()) await Promise.resolve();
    await applying;
    const fresh = await open(after);
    const now = new Map(holders.map((holder) => [holder, fresh.rightsOf(holder)]));
    await fresh.host.close();
    for (const holder of holders)
      for (const each of seen.get(holder) ?? []) {
        const rights = JSON.parse(each) as string[];
        const isBounded = [old, now].some((file) => isSubset(rights, file.get(holder) ?? []));
        expect(isBounded, `seed ${seed}, edit ${i}: ${holder} had ${each}`).toBe(true);
      }
    await gateway.close(0);
    await host.close();
  }
  expect(looks).toBeGreaterThan(250);
});

test('E11 after an edit the rights equal those of a host that was started with the new file', async () => {
  const random = seededRandom(11);
  for (let i = 0; i < countFor(10, 500); i++) {
    const [before, after] = [randomFile(random), randomFile(random)].map((file) => readable(file)) as [
      HostConfig,
      HostConfig,
    ];
    const [edited, fresh] = [await open(before), await open(after)];
    const { host, gateway, workers } = edited;
    const prepareKeys = (keys: object) => async () => workers.replace(parseKeys(keys, () => {}));
    await applyConfig(
      { host, gateway, workers: { prepareKeys } },
      { config: after, keys: parseServing(after).keys, listen, swap: () => {} },
    );
    for (const holder of holders) expect(edited.rightsOf(holder).sort()).toEqual(fresh.rightsOf(holder).sort());
    for (const each of [edited, fresh]) await each.host.close();
  }
});

/** Without unreadable entries: on an edit they leave a server unchanged, at the start of a host they disable it. */
const readable = (file: HostConfig): HostConfig => ({
  ...file,
  mcpServers: Object.fromEntries(
    Object.entries(file.mcpServers ?? {}).map(([name, entry]) => {
      const { comand: _typo, ...rest } = entry as Record<string, unknown>;
      return [name, rest];
    }),
  ),
});

const all = { s1: { command: 'one' } };
const keyOf = (role: string) => ({ ann: { hash: `sha256:${digestOf('ann')}`, role } });
const oldFile: HostConfig = { mcpServers: all, roles: { r1: { allow: ['s1/t1'] } }, keys: keyOf('r1') };
const newFile: HostConfig = { mcpServers: all, roles: { r2: { allow: ['*/*'] } }, keys: keyOf('r2') };

test.each([
  ['a setting that cannot be used', { ...newFile, unlistedRole: 'sometimes' } as unknown as HostConfig, undefined],
  ['an internal error in the keys of workers', newFile, new TypeError('not a HostError')],
  ['keys that the broker refuses', newFile, new HostError('invalid_spec', 'too many workers')],
])('E11 an edit with %s is refused as a whole, and nothing was applied', async (_what, after, thrown) => {
  const { host, gateway, rightsOf } = await open(oldFile);
  const swapped: string[] = [];
  const prepareKeys = () => {
    if (thrown) throw thrown;
    return async () => void swapped.push('workers');
  };
  const edit = { config: after, keys: newFile.keys ?? {}, listen, swap: () => swapped.push('settings') };
  const { rulesRevision } = host;
  await expect(applyConfig({ host, gateway, workers: { prepareKeys } }, edit)).rejects.toThrow();
  expect([swapped, rightsOf('ann'), host.rulesRevision]).toEqual([
    [],
    ['client s1/t1 of one', 'worker s1/t1 of one'],
    rulesRevision,
  ]);
  await host.close();
});

test('E11 a removed key is refused at once, even while a server that an earlier edit removed still stops', async () => {
  const { host, gateway, rightsOf } = await open(oldFile);
  const edit = (config: HostConfig) =>
    applyConfig({ host, gateway, workers: undefined }, { config, keys: config.keys ?? {}, listen, swap: () => {} });
  // The server is starting, and on this clock neither its start nor its removal ends.
  void host.start('s1').catch(() => {});
  const first = edit({ ...oldFile, mcpServers: { s2: { command: 'two' } } });
  const second = edit({ mcpServers: {}, keys: {} });
  for (let turns = 0; turns < 50 && host.names().length > 0; turns++) await Promise.resolve();
  expect([host.names(), rightsOf('ann')]).toEqual([[], []]);
  void Promise.allSettled([first, second]);
});

test('E11 a server whose new entry cannot be read is unchanged; if roles or keys changed too, only the operator may use it', async () => {
  const { host, gateway, rightsOf } = await open(oldFile);
  const edit = (config: HostConfig) =>
    applyConfig({ host, gateway, workers: undefined }, { config, keys: config.keys ?? {}, listen, swap: () => {} });
  const typo = { s1: { command: 'one', tools: { deny: ['t2'] }, comand: 'typo' } };
  const ofClient = () => rightsOf('ann').filter((right) => right.startsWith('client'));
  await edit({ ...oldFile, mcpServers: typo });
  expect(ofClient()).toEqual(['client s1/t1 of one']);
  await edit({ ...newFile, mcpServers: typo });
  expect(ofClient()).toEqual([]);
  expect(host.isAllowed(embedder, 's1', 't1')).toBe(true);
  await edit({ ...newFile, mcpServers: { ...typo, s2: { command: 'two' } } });
  expect(ofClient()).toEqual(['t1', 't2', 't3'].map((tool) => `client s2/${tool} of two`));
  await edit({ ...newFile, mcpServers: { s1: { command: 'one', tools: { deny: ['t2'] } } } });
  expect(ofClient()).toEqual(['client s1/t1 of one', 'client s1/t3 of one']);
  await host.close();
});
