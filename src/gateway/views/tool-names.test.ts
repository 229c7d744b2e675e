import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type PreferredName, prefixed, uniqueNames } from './tool-names.js';

const want = (server: string, tool: string): PreferredName => ({ server, tool, name: prefixed(server, tool) });
const named = (...pairs: [string, string][]) => uniqueNames(pairs.map(([server, tool]) => want(server, tool)));

describe('names at an endpoint of many servers', () => {
  test('consist of the names of server and tool', () => {
    expect(named(['fs', 'read_file'], ['git', 'log_short-1'])).toEqual(['fs__read_file', 'git__log_short-1']);
  });

  test('with a hash never change from release to release', () => {
    expect(named(['files', 'lies/mich'])).toEqual(['files__lies_mich_kvukylcs']);
    expect(named(['s'.repeat(40), 't'.repeat(40)])).toEqual([`${'s'.repeat(40)}__${'t'.repeat(13)}_g5ow2you`]);
  });

  test('get a hash on both sides when they would be equal, in any order', () => {
    const [one, other] = named(['a__b', 'c'], ['a', 'b__c']);
    expect(one).toMatch(/^a__b__c_[a-z2-7]{8}$/);
    expect(other).toMatch(/^a__b__c_[a-z2-7]{8}$/);
    expect(one).not.toBe(other);
    expect(named(['a', 'b__c'], ['x', 'y'], ['a__b', 'c'])).toEqual([other, 'x__y', one]);
    expect(named(['a', 'b__c'])).toEqual(['a__b__c']);
  });

  test('cannot be taken by a tool whose name equals the hashed name of another', () => {
    const [hashed] = named(['s', 'ä']);
    const names = named(['s', 'ä'], ['s', (hashed as string).slice('s__'.length)]);
    expect(new Set(names).size).toBe(2);
    expect(names).not.toContain(hashed);
  });

  test('differ for names that differ in unpaired surrogates only', () => {
    expect(new Set(named(['s', '\ud800'], ['s', '\ud801'], ['s', '\udfff'])).size).toBe(3);
  });

  test('100,000 pairs: each unique, short and valid, and independent of the other names', () => {
    const part = fc.oneof(
      fc.constantFrom('a', 'b', 'a__b', 'b__c', '_', '__', 'c', 'ä', 'ö', 'x/y', 'x y'),
      fc.stringMatching(/^[A-Za-z0-9_.-]{1,40}$/),
      fc.string({ minLength: 1, maxLength: 60, unit: 'binary' }),
    );
    const pairs = fc.uniqueArray(fc.tuple(fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,20}$/), part), {
      minLength: 1_000,
      maxLength: 1_000,
      size: 'max',
      selector: ([server, tool]) => `${server}\0${tool}`,
    });
    let seen = 0;
    fc.assert(
      fc.property(pairs, (drawn) => {
        const wanted = drawn.map(([server, tool]) => want(server, tool));
        const names = uniqueNames(wanted);
        seen += names.length;
        expect(new Set(names).size).toBe(names.length);
        expect(names.filter((name) => !/^[A-Za-z0-9_-]{1,64}$/.test(name))).toEqual([]);
        expect(uniqueNames(wanted.toReversed()).toReversed()).toEqual(names);
        const alone = wanted.map((each) => uniqueNames([each])[0]);
        const counts = new Map<string | undefined, number>();
        for (const name of alone) counts.set(name, (counts.get(name) ?? 0) + 1);
        const moved = names.filter((name, i) => name !== alone[i] && counts.get(alone[i]) === 1);
        // Only a tool whose name equals another's hashed name could change that name, and no random name does.
        expect(moved).toEqual([]);
      }),
      { numRuns: 100 },
    );
    expect(seen).toBe(100_000);
  });
});

describe('names at the endpoint of one server', () => {
  test('stay unchanged, whatever they look like', () => {
    const names = ['a b', 'x'.repeat(200), 'ä'];
    expect(
      uniqueNames(
        names.map((tool) => ({ server: 's', tool, name: tool })),
        true,
      ),
    ).toEqual(names);
  });

  test('get a hash when the operator gave two tools the same name', () => {
    const names = uniqueNames(
      [
        { server: 's', tool: 'a', name: 'b' },
        { server: 's', tool: 'b', name: 'b' },
      ],
      true,
    );
    expect(new Set(names).size).toBe(2);
    expect(names[0]).toMatch(/^b_[a-z2-7]{8}$/);
  });
});
