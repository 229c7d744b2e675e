import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { createRedactor } from '../kernel/redact.js';
import { isPackageRunner, parseServerDefinition } from './server-definition.js';

const parse = (entry: unknown) => parseServerDefinition('files', entry, true);

test('a plain entry has every default', () => {
  expect(parse({ command: 'node', args: ['server.js'] })).toMatchObject({
    name: 'files',
    isEnabled: true,
    isLazy: true,
    keepAliveMs: 600_000,
    restart: { max: 5, windowMs: 300_000, onExhausted: 'park' },
    breaker: { threshold: 5, resetMs: 30_000 },
    timeouts: { firstStartMs: 30_000, startMs: 30_000, callMs: 60_000 },
    concurrency: 64,
    queueLength: 1_024,
    cache: 'on',
    pins: { onFirstSight: 'warn', onChange: 'block' },
    trustAnnotations: false,
  });
});

test('a package runner gets more time for its first start, unless the entry sets the time', () => {
  const npx = parse({ command: '/usr/bin/npx', args: ['-y', 'server'] });
  expect(isPackageRunner(npx.spec)).toBe(true);
  expect(npx.timeouts).toMatchObject({ firstStartMs: 120_000, startMs: 30_000 });
  expect(parse({ command: 'npx', timeouts: { start: '9s' } }).timeouts).toMatchObject({
    firstStartMs: 9_000,
    startMs: 9_000,
  });
});

test('durations are texts or numbers, and 0 keeps a server for ever', () => {
  expect(parse({ command: 'a', keepAlive: 0, timeouts: { start: 1_500, call: '2m' } })).toMatchObject({
    keepAliveMs: 0,
    timeouts: { startMs: 1_500, callMs: 120_000 },
  });
});

test.each(['https://example.com/card', './card.json', 'C:\\cards\\one.json', 'card'])('a card may be at %s', (card) => {
  expect(parse({ command: 'a', card }).card).toBe(card);
});

describe('D-29 a bad entry is named by its path from the top of the configuration', () => {
  test.each([
    [5, 'mcpServers.files'],
    [{}, 'mcpServers.files'],
    [{ command: 5 }, 'mcpServers.files.command'],
    [{ command: 'a', lazy: 'yes' }, 'mcpServers.files.lazy'],
    [{ command: 'a', restart: { max: -1 } }, 'mcpServers.files.restart.max'],
    [{ command: 'a', restart: { window: '0s' } }, 'mcpServers.files.restart.window'],
    [{ command: 'a', breaker: { threshold: 0 } }, 'mcpServers.files.breaker.threshold'],
    [{ command: 'a', breaker: { reset: '2 days' } }, 'mcpServers.files.breaker.reset'],
    [{ command: 'a', timeouts: { strat: '1s' } }, 'mcpServers.files.timeouts.strat'],
    [{ command: 'a', concurrency: 1.5 }, 'mcpServers.files.concurrency'],
    [{ command: 'a', allowed_tools: [] }, 'mcpServers.files.allowed_tools'],
    [{ command: 'a', card: 5 }, 'mcpServers.files.card'],
    [{ command: 'a', card: '' }, 'mcpServers.files.card'],
    [{ command: 'a', card: 'ftp://example.com/card' }, 'mcpServers.files.card'],
    [{ command: 'a', card: 'http://' }, 'mcpServers.files.card'],
    [{ command: 'a', card: 'x'.repeat(2_049) }, 'mcpServers.files.card'],
  ])('%j', (entry, field) => {
    let error: unknown;
    try {
      parse(entry);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(HostError);
    expect(error).toMatchObject({ code: 'invalid_spec', details: { field } });
    expect((error as HostError).message.startsWith(`${field}: `)).toBe(true);
  });
});

describe('tools', () => {
  const parse = (tools: unknown) => parseServerDefinition('git', { command: 'git-mcp', tools }, true).tools;

  test('without the key, every tool is available under its own name', () => {
    expect(parseServerDefinition('git', { command: 'git-mcp' }, true).tools).toEqual({
      allow: undefined,
      deny: [],
      rename: {},
    });
  });

  test('are offered and named as written', () => {
    const tools = { allow: ['read'], deny: ['write'], rename: { read: 'look' } };
    expect(parse(tools)).toEqual(tools);
  });

  test.each([
    [{ allow: 'read' }, 'mcpServers.git.tools.allow'],
    [{ forbid: [] }, 'mcpServers.git.tools.forbid'],
    [{ rename: { read: 'a b' } }, 'mcpServers.git.tools.rename.read'],
    [{ rename: { read: 'x', write: 'x' } }, 'mcpServers.git.tools.rename.write'],
  ])('%j is refused, with its path', (tools, field) => {
    expect(() => parse(tools)).toThrow(expect.objectContaining({ details: expect.objectContaining({ field }) }));
  });
});

test.each([
  [{ command: 'x', bogus: 1 }, 'mcpServers.files.bogus: is not known'],
  [{ command: 'x', apiKey: 'hidden' }, 'mcpServers.files.apiKey: is not known'],
  [{ command: 'x', restart: { token: 1 } }, 'mcpServers.files.restart.token: is not known'],
])('the error names an unknown key, also after redaction: %j', (entry, message) => {
  const { redact } = createRedactor();
  let said = '';
  try {
    parse(entry);
  } catch (error) {
    said = (error as Error).message;
  }
  expect([said, redact(said)]).toEqual([message, message]);
});

test.each([
  ['env', '{"command":"a","env":{"__proto__":"x"}}'],
  ['headers', '{"url":"https://example.com","headers":{"__proto__":"x"}}'],
  ['tools.rename', '{"command":"a","tools":{"rename":{"__proto__":"x"}}}'],
])('E12 a member called __proto__ in %s is refused: it would be accepted and not take effect', (table, text) => {
  expect(() => parse(JSON.parse(text))).toThrow(`mcpServers.files.${table}.__proto__: is not a valid name`);
});

test('E12 members that an entry only inherits are not read', () => {
  expect(() => parse(Object.create({ command: 'node' }))).toThrow('needs a command (stdio) or a url');
});
