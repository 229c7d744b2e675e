import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { findServer, readTarget, slugPattern, slugsOf } from './server-name.js';

const slugOf = (name: string): string | undefined => slugsOf([name]).get(name);

describe('a name from a client configuration gets a slug', () => {
  test.each([
    ['memory', 'memory'],
    ['my_server-2', 'my_server-2'],
    ['github.com/upstash/context7-mcp', 'github-com-upstash-context7-mcp'],
    ['Sequential Thinking', 'sequential-thinking'],
    ['@21st-dev/magic', '21st-dev-magic'],
    ['Café Ü', 'cafe-u'],
    ['  spaced  ', 'spaced'],
    ['__proto__', 'proto__'],
    ['-x', 'x'],
  ])('%j: %s', (name, slug) => {
    expect(slugOf(name)).toBe(slug);
  });

  test('a name without usable characters, or with too many, ends with a hash', () => {
    expect(slugOf('検索')).toMatch(/^server-[0-9a-f]{8}$/);
    expect(slugOf('')).toMatch(/^server-[0-9a-f]{8}$/);
    expect(slugOf('x'.repeat(65))).toMatch(/^x{55}-[0-9a-f]{8}$/);
    expect(slugOf('x'.repeat(64))).toBe('x'.repeat(64));
  });
});

test('on a collision every name that is no slug gets a hash, in any order of the names', () => {
  const slugs = slugsOf(['a.b', 'A b', 'c']);
  expect([...slugs.values()]).toEqual([
    expect.stringMatching(/^a-b-[0-9a-f]{8}$/),
    expect.stringMatching(/^a-b-[0-9a-f]{8}$/),
    'c',
  ]);
  expect(slugsOf(['c', 'A b', 'a.b'])).toEqual(slugs);
});

test('a name that is a slug keeps it when a name with the same slug is added', () => {
  const slugs = slugsOf(['github', 'GitHub']);
  expect([...slugs.values()]).toEqual(['github', expect.stringMatching(/^github-[0-9a-f]{8}$/)]);
  expect(slugsOf(['GitHub', 'github'])).toEqual(slugs);
});

test('a name that equals the hashed slug of another name gets a different slug', () => {
  const forged = slugsOf(['a.b', 'a-b']).get('a.b') as string;
  const slugs = slugsOf(['a.b', 'a-b', forged]);
  expect(new Set(slugs.values()).size).toBe(3);
  expect(slugsOf([forged, 'a-b', 'a.b'])).toEqual(slugs);
});

test('any names: valid and different slugs, independent of the order, and stable', () => {
  const name = fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('a.b', 'a-b', 'A B', 'a_b', 'ä', 'a', 'A'));
  fc.assert(
    fc.property(fc.uniqueArray(name, { maxLength: 20 }), (names) => {
      const slugs = slugsOf(names);
      const values = [...slugs.values()];
      expect(values.every((slug) => slugPattern.test(slug))).toBe(true);
      expect(new Set(values).size).toBe(names.length);
      expect(slugsOf([...names].reverse())).toEqual(slugs);
      expect([...slugsOf(values).values()]).toEqual(values);
    }),
    { numRuns: 300 },
  );
});

describe('commands accept the slug or the label of a server', () => {
  const servers = [{ name: 'magic', label: '@21st-dev/magic' }, { name: 'git', label: 'git' }, { name: 'x' }];

  test('slugs have priority over labels', () => {
    expect(findServer(servers, '@21st-dev/magic')).toBe('magic');
    expect(findServer([...servers, { name: 'y', label: 'x' }], 'x')).toBe('x');
    expect(findServer(servers, 'none')).toBeUndefined();
  });

  test('a tool follows a slug only: a label may contain slashes', () => {
    expect(readTarget(servers, '@21st-dev/magic')).toEqual({ server: 'magic' });
    expect(readTarget(servers, 'magic/a/b')).toEqual({ server: 'magic', tool: 'a/b' });
    expect(readTarget(servers, '@21st-dev/magic/a')).toEqual({ server: '@21st-dev', tool: 'magic/a' });
    expect(readTarget(servers, 'none')).toEqual({ server: 'none' });
  });

  test('a dot separates the tool too, after the slug of a server that exists', () => {
    expect(readTarget(servers, 'magic.a.b/c')).toEqual({ server: 'magic', tool: 'a.b/c' });
    expect(readTarget(servers, 'magic/a.b')).toEqual({ server: 'magic', tool: 'a.b' });
    expect(readTarget(servers, 'none.a')).toEqual({ server: 'none.a' });
    expect(readTarget([{ name: 'ab', label: 'magic.a' }, ...servers], 'magic.a')).toEqual({ server: 'ab' });
  });
});
