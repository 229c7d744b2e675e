import { describe, expect, test } from 'vitest';
import { PinHashes, type PinItem, pinHash } from './pin-hash.js';

const item = (key: string, description = ''): PinItem => ({
  key,
  raw: Buffer.from(JSON.stringify({ name: key, description })),
});
const many = (count: number, bytes: number, mark = '') =>
  Array.from({ length: count }, (_, i) => item(`t${i}`, `${mark}${'x'.repeat(bytes)}`));

function setUp() {
  const made: Buffer[] = [];
  const hashes = new PinHashes('tool', (kind, raw) => {
    made.push(raw);
    return pinHash(kind, raw);
  });
  const judge = (items: readonly PinItem[]) =>
    [...hashes.ofList('s', items)].map(([name, { hashes: own }]) => [name, own?.hash] as const);
  const list = (...items: PinItem[]) => judge(items);
  return { hashes, made, judge, list };
}

const hashOf = ({ raw }: PinItem) => pinHash('tool', raw)?.hash;

describe('a list', () => {
  test('X18 with the bytes of the previous list costs no hash, and a changed tool costs one', () => {
    const { made, list } = setUp();
    const first = list(item('a'), item('b'));
    expect(list(item('b'), item('a')).toReversed()).toEqual(first);
    expect(made.length).toBe(2);
    expect(list(item('a'), item('b', 'other'))).toEqual([
      ['a', hashOf(item('a'))],
      ['b', hashOf(item('b', 'other'))],
    ]);
    expect(made.length).toBe(3);
  });

  test('is compared only with the previous list of the same server', () => {
    const { hashes, made, list } = setUp();
    list(item('a'));
    list(item('b'));
    list(item('a'));
    hashes.ofList('other', [item('a')]);
    hashes.forget('s');
    list(item('a'));
    expect(made.length).toBe(5);
  });

  test('with a duplicate name has no hash for it; the list after it has one again', () => {
    const { list } = setUp();
    expect(list(item('a'), item('a'))).toEqual([['a', undefined]]);
    expect(list(item('a'))).toEqual([['a', hashOf(item('a'))]]);
    expect(list(item(''), item('a', 'x'))).toEqual([['a', hashOf(item('a', 'x'))]]);
  });

  test('an item with another name has another hash', () => {
    const { made, list } = setUp();
    const { raw } = item('a');
    list({ key: 'a', raw });
    list({ key: 'b', raw });
    expect(made.length).toBe(2);
  });
});

describe('hashing ahead of a list', () => {
  test('X18 a few hashes are left to the check, many are computed in slices before it, each once', async () => {
    const { hashes, made, judge } = setUp();
    expect(hashes.ahead('s', many(10, 1_000))).toBeUndefined();
    expect(made.length).toBe(0);
    // Items of 32 KiB: after every second item other tasks get a turn.
    const large = many(64, 32 * 1024);
    let turns = 0;
    let isDone = false;
    const others = () => {
      turns++;
      if (!isDone) setImmediate(others);
    };
    setImmediate(others);
    await hashes.ahead('s', large);
    isDone = true;
    expect([made.length, turns]).toEqual([64, expect.toSatisfy((n: number) => n >= 32)]);
    expect(judge(large)).toEqual(large.map((each) => [each.key, hashOf(each)]));
    expect(made.length).toBe(64);
  });

  test('many small items are hashed in slices too', () => {
    const { hashes } = setUp();
    expect(hashes.ahead('s', many(129, 1))).toBeInstanceOf(Promise);
  });

  test('X18 items whose comparison takes a whole tick are compared in the next one', async () => {
    const { hashes, made, list } = setUp();
    list(...many(1_001, 1));
    expect(hashes.ahead('s', many(1_000, 1))).toBeUndefined();
    await expect(hashes.ahead('s', many(1_001, 1))).resolves.toBeUndefined();
    expect(made.length).toBe(1_001);
  });

  test('a hash that is known from the previous list is not computed again', async () => {
    const { hashes, made, list } = setUp();
    list(...many(64, 32 * 1024));
    expect(hashes.ahead('s', many(64, 32 * 1024))).toBeUndefined();
    await hashes.ahead('s', many(64, 32 * 1024, 'y'));
    expect(made.length).toBe(128);
  });

  test('hashes of two lists that are computed at the same time do not mix', async () => {
    const { hashes, made, judge } = setUp();
    const [one, two] = [many(16, 32 * 1024, 'one'), many(16, 32 * 1024, 'two')];
    await Promise.all([hashes.ahead('s', one), hashes.ahead('s', two)]);
    expect(judge(two)).toEqual(two.map((each) => [each.key, hashOf(each)]));
    expect(judge(one)).toEqual(one.map((each) => [each.key, hashOf(each)]));
    expect(made.length).toBe(32);
  });
});
