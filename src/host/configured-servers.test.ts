import { expect, test } from 'vitest';
import { parseHostConfig } from '../config/host-config.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { deferred } from '../kernel/deferred.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import { ConfiguredServers, changeConfiguration } from './configured-servers.js';
import { HostRules } from './host-rules.js';
import type { Servers } from './servers.js';

/** Servers by name, as changed by configurations. A removed server needs time to stop. */
class SlowServers implements Pick<Servers, 'declare' | 'redeclare' | 'remove' | 'find'> {
  readonly byName = new Map<string, ServerDefinition>();
  readonly gone = deferred();
  readonly #mutex = new KeyedMutex();

  declare(definition: ServerDefinition): void {
    this.byName.set(definition.name, definition);
  }

  redeclare(...[definition, , isStillNeeded]: Parameters<Servers['redeclare']>): ReturnType<Servers['redeclare']> {
    return this.#mutex.runExclusive(definition.name, async () => {
      if (!isStillNeeded()) return 'unchanged';
      this.declare(definition);
      return 'added';
    });
  }

  remove(name: string): Promise<void> {
    return this.#mutex.runExclusive(name, async () => {
      this.byName.delete(name);
      await this.gone.promise;
    });
  }

  whileBusy(name: string, busy: Promise<void>): Promise<void> {
    return this.#mutex.runExclusive(name, () => busy);
  }

  find(name: string): ReturnType<Servers['find']> {
    const definition = this.byName.get(name);
    return definition && ({ definition } as ReturnType<Servers['find']>);
  }
}

const settingsOf = (mcpServers: object) => parseHostConfig({ mcpServers }, () => {});
const entry = { command: 'node' };

test('E11 a server that was removed, added and removed again before it had stopped is not started', async () => {
  const servers = new SlowServers();
  const configured = new ConfiguredServers(servers, () => {});
  configured.declare(settingsOf({ x: entry, y: entry }));
  const edits = [{ y: entry }, { x: entry, y: entry }, { y: entry }].map((each) => configured.apply(settingsOf(each)));
  servers.gone.resolve();
  await Promise.all(edits);
  expect([...servers.byName.keys()]).toEqual(['y']);
});

test('E11 a server that was added again before it had stopped runs with its last entry', async () => {
  const servers = new SlowServers();
  const configured = new ConfiguredServers(servers, () => {});
  configured.declare(settingsOf({ x: entry }));
  const edits = [{}, { x: entry }, { x: { command: 'perl' } }].map((each) => configured.apply(settingsOf(each)));
  servers.gone.resolve();
  await Promise.all(edits);
  expect(servers.find('x')?.definition.spec).toMatchObject({ command: 'perl' });
});

test('E11 listeners are notified of a server again when its change is done, even if another server still changes', async () => {
  const servers = new SlowServers();
  const [ends, rules, told] = [new Map<string, () => void>(), new HostRules(() => undefined), [] as string[]];
  const configured = new ConfiguredServers(servers, () => expect.unreachable());
  configured.declare(settingsOf({ x: entry, y: entry }));
  for (const name of ['x', 'y']) {
    const busy = deferred();
    ends.set(name, busy.resolve);
    void servers.whileBusy(name, busy.promise);
  }
  const parts = {
    ...{ rules, configured, audit: {}, listOperations: { dropAll: () => {} } },
    servers: { names: () => [...servers.byName.keys()] },
    listings: { changed: (server: string) => told.push(`${server} ${rules.revision}`) },
    onProblem: () => expect.unreachable(),
  } as unknown as Parameters<typeof changeConfiguration>[0];
  const perl = { command: 'perl' };
  const applied = changeConfiguration(parts, settingsOf({ x: perl, y: perl }), undefined, undefined);
  const before = rules.revision;
  told.length = 0;
  ends.get('y')?.();
  await new Promise((resolve) => setImmediate(resolve));
  expect(told).toEqual([`y ${before + 1}`]);
  ends.get('x')?.();
  await applied;
  expect(told).toEqual([`y ${before + 1}`, `x ${before + 2}`]);
});
