import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { copyConfig, copyEntry, UnusableEntry } from './copy-config.js';

const throwing = {
  get command(): string {
    throw new Error('from the getter');
  },
};

function errorOf(copy: () => unknown): HostError {
  try {
    copy();
  } catch (error) {
    expect(error).toBeInstanceOf(HostError);
    return error as HostError;
  }
  throw new Error('nothing was thrown');
}

describe('the copy', () => {
  test('has only own members and no prototype, also if a member is named __proto__', () => {
    const config = Object.assign(Object.create({ inherited: 1 }), {
      own: JSON.parse('{"__proto__":{"a":1}}') as object,
    });
    const copy = copyConfig(config) as Record<string, Record<string, unknown>>;
    expect([Object.keys(copy), Object.getPrototypeOf(copy)]).toEqual([['own'], null]);
    expect(Object.keys(copy.own as object)).toEqual(['__proto__']);
    expect(Object.getPrototypeOf(copy.own)).toBe(null);
  });

  test('reads each getter once', () => {
    let reads = 0;
    const config = {
      get mcpServers() {
        reads++;
        return { a: { command: 'node' } };
      },
    };
    expect(JSON.stringify(copyConfig(config))).toBe('{"mcpServers":{"a":{"command":"node"}}}');
    expect(reads).toBe(1);
  });

  test('an entry that throws is unusable, and the entries beside it are copied', () => {
    const { mcpServers } = copyConfig({ mcpServers: { bad: throwing, good: { command: 'node' } } }) as {
      mcpServers: Record<string, unknown>;
    };
    expect(mcpServers.bad).toBeInstanceOf(UnusableEntry);
    expect((mcpServers.bad as UnusableEntry).error.message).toBe(
      'mcpServers.bad.command: cannot be read: reading it throws',
    );
    expect(mcpServers.good).toEqual({ command: 'node' });
  });

  test('a getter that throws outside of any entry is an error with its path', () => {
    expect(errorOf(() => copyConfig({ listen: throwing })).details.field).toBe('listen.command');
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    expect(errorOf(() => copyEntry(proxy, 'the server')).message).toContain('the server: cannot be read');
  });

  test('is bounded: cycles, depth and long lists are refused, an object in two places is copied once', () => {
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    expect(errorOf(() => copyEntry(cycle)).message).toBe('self: contains itself');
    const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: deep(levels - 1) });
    expect(errorOf(() => copyEntry(deep(70))).message).toContain('is nested more than 64 deep');
    expect(errorOf(() => copyEntry({ args: new Array(2 ** 32 - 1) })).message).toContain('more than 10000 entries');
    let doubled: unknown = 1;
    for (let level = 0; level < 50; level++) doubled = { a: doubled, b: doubled };
    expect((copyEntry(doubled) as { a: unknown }).a).toBeDefined();
  });
});
