import { expect, test } from 'vitest';
import { UnusableEntry } from '../../config/copy-config.js';
import { PlaceholderFiles } from '../../config/placeholders.js';
import { partsOf } from './config-parts.js';
import { type Configuration, withholdUnconfirmed } from './unconfirmed-changes.js';

const files = new PlaceholderFiles('/');
const configuration = (config: unknown): Configuration => ({ config, parts: partsOf(config, files) });
const digestsOf = (config: unknown) => new Set(partsOf(config, files).map(({ digest }) => digest));

const before = {
  mcpServers: { a: { command: 'old', env: { A: '1' }, lazy: false }, b: { url: 'https://b.example' } },
  keys: { ann: { hash: 'h1', role: 'guest' } },
  listen: { host: '127.0.0.1' },
  roles: { guest: { allow: [] } },
};
const hold = (next: unknown, confirmed: unknown = before) =>
  withholdUnconfirmed(configuration(before), configuration(next), digestsOf(confirmed));

test('E8 a changed command waits, and the server keeps running unchanged', () => {
  const { config, waiting } = hold({
    ...before,
    mcpServers: { ...before.mcpServers, a: { command: 'evil', lazy: false } },
  });
  expect(waiting).toEqual(['mcpServers.a']);
  expect(config).toEqual(before);
});

test('E8 a change of a setting that needs no confirmation takes effect at once', () => {
  const { config, waiting } = hold({
    ...before,
    mcpServers: { a: { command: 'evil', timeouts: { call: '9s' } }, b: { ...before.mcpServers.b, enabled: false } },
  });
  expect(waiting).toEqual(['mcpServers.a']);
  expect(config).toMatchObject({
    mcpServers: {
      a: { command: 'old', env: { A: '1' }, timeouts: { call: '9s' } },
      b: { url: 'https://b.example', enabled: false },
    },
  });
  expect((config as typeof before).mcpServers.a).not.toHaveProperty('lazy');
});

test('E8 a command that is replaced by a URL stays in use until the change is confirmed', () => {
  const { config } = hold({ ...before, mcpServers: { a: { url: 'https://evil.example' } } });
  expect((config as typeof before).mcpServers.a).toEqual({ command: 'old', env: { A: '1' } });
});

test('E8 a new server waits under its name, and a removed server stops', () => {
  const { config, waiting } = hold({ ...before, mcpServers: { c: { command: 'evil' } } });
  const { mcpServers } = config as { mcpServers: Record<string, UnusableEntry> };
  expect([waiting, Object.keys(mcpServers)]).toEqual([['mcpServers.c'], ['c']]);
  expect(mcpServers.c).toBeInstanceOf(UnusableEntry);
  expect(mcpServers.c?.error).toMatchObject({
    code: 'invalid_spec',
    message: expect.stringContaining('waits for hostler trust'),
  });
});

test('E8 confirmed parts take effect', () => {
  const next = { ...before, mcpServers: { a: { command: 'new' }, c: { command: 'more' } }, listen: { host: '::1' } };
  expect(hold(next, next)).toMatchObject({ config: next, waiting: [] });
});

test('E8 roles, budgets, groups and the log take effect at once', () => {
  const next = { ...before, roles: { guest: { allow: ['a/*'] } }, groups: { g: ['a'] }, log: { level: 'debug' } };
  expect(hold(next)).toMatchObject({ config: next, waiting: [] });
});

test('a key that waits is not accepted, and neither is one that was removed', () => {
  const changed = hold({ ...before, keys: { ann: { hash: 'h1' }, eve: { hash: 'h2' } } });
  expect([changed.waiting, (changed.config as typeof before).keys]).toEqual([['keys.ann', 'keys.eve'], {}]);
  expect(hold({ ...before, keys: {} })).toMatchObject({ config: { keys: {} }, waiting: [] });
});

test('a change of the listen address or of the broker waits', () => {
  const opened = { ...before, listen: { host: '0.0.0.0' }, broker: { url: 'wss://evil.example' } };
  const { config, waiting } = hold(opened);
  expect([config, waiting]).toEqual([before, ['listen', 'broker']]);
});

test('E8 a waiting part still waits at the next edit, and running servers are compared by how they run', () => {
  const first = hold({ ...before, mcpServers: { ...before.mcpServers, a: { command: 'evil' } } });
  const second = withholdUnconfirmed(
    first,
    configuration({ ...before, mcpServers: { a: { command: 'evil' } } }),
    new Set(),
  );
  expect(second).toMatchObject({ waiting: ['mcpServers.a'], config: { mcpServers: { a: { command: 'old' } } } });
  // Back to the old definition: nothing waits, whether it was confirmed or not.
  expect(withholdUnconfirmed(second, configuration(before), digestsOf(before))).toMatchObject({
    waiting: [],
    config: before,
  });
});

test('an entry that becomes unusable does not stop the running server', () => {
  const next = { ...before, mcpServers: { a: new UnusableEntry({} as never) } };
  const { config } = withholdUnconfirmed(
    configuration(before),
    { config: next, parts: partsOf({ ...before, mcpServers: { a: { command: `\${env:NONE}` } } }, files) },
    digestsOf(before),
  );
  expect(config).toMatchObject({ mcpServers: { a: before.mcpServers.a } });
});

test('names of inherited members are ordinary names', () => {
  const next = JSON.parse('{"mcpServers":{"__proto__":{"command":"x"},"constructor":{"command":"y"}}}') as object;
  const { config, waiting } = hold(next);
  const { mcpServers } = config as { mcpServers: Record<string, unknown> };
  expect(waiting).toEqual(['mcpServers.__proto__', 'mcpServers.constructor']);
  expect(Object.values(mcpServers).every((entry) => entry instanceof UnusableEntry)).toBe(true);
});
