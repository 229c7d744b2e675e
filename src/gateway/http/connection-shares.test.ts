import { expect, test } from 'vitest';
import { ConnectionShares } from './http-connections.js';

interface Fake {
  readonly name: string;
  isIdle: boolean;
}

/** Sixteen places: four for anonymous connections and twelve for keys. A quarter of the twelve is three. */
function setUp(max = 16) {
  const shares = new ConnectionShares<Fake>(max);
  let count = 0;
  const connect = () => {
    const connection: Fake = { name: `c${++count}`, isIdle: true };
    return { connection, closed: shares.add(connection) };
  };
  /** Opens this many connections of a key. Returns the result of each. */
  const open = (key: string, asked: number, isIdle = true) => {
    const kept: Fake[] = [];
    const closed: Fake[] = [];
    let refused = 0;
    for (let i = 0; i < asked; i++) {
      const { connection, closed: first } = connect();
      if (first) closed.push(first);
      const claimed = shares.claim(connection, key);
      connection.isIdle = isIdle;
      if (claimed === 'refused') {
        refused++;
        shares.delete(connection);
      } else {
        kept.push(connection);
        if (claimed) closed.push(claimed);
      }
    }
    return { kept, closed, refused };
  };
  return { shares, connect, open };
}

test('E12 one key gets every place except those for anonymous connections, and its next connection is refused', () => {
  const { shares, open } = setUp();
  const { kept, closed, refused } = open('a', 20);
  expect([kept.length, closed.length, refused, shares.size]).toEqual([12, 0, 8, 12]);
});

test('E12 another key gets its quarter from the key with most connections: idle ones are closed first, the oldest first', () => {
  const { shares, open } = setUp();
  const { kept } = open('a', 12, false);
  const [, second, third] = kept as [Fake, Fake, Fake];
  second.isIdle = third.isIdle = true;
  const { closed, refused } = open('b', 4);
  expect([closed, refused, shares.size]).toEqual([[second, third, kept[0]], 1, 12]);
});

test('E12 keys with a quarter each keep their connections', () => {
  const { open } = setUp();
  for (const key of ['a', 'b', 'c', 'd']) expect(open(key, 3)).toMatchObject({ closed: [], refused: 0 });
  for (const key of ['a', 'b', 'c', 'd', 'e']) expect(open(key, 1)).toMatchObject({ closed: [], refused: 1 });
});

test('E12 a connection without a key is closed only for another one without a key, the oldest first', () => {
  const { shares, connect, open } = setUp();
  open('a', 12, false);
  const anonymous = [connect(), connect(), connect(), connect()];
  expect(anonymous.map(({ closed }) => closed)).toEqual([undefined, undefined, undefined, undefined]);
  expect([connect().closed, connect().closed]).toEqual(anonymous.slice(0, 2).map(({ connection }) => connection));
  expect(shares.size).toBe(16);
});

test('E12 without keys, anonymous connections may have every place', () => {
  const { shares, connect } = setUp();
  const closed = Array.from({ length: 20 }, () => connect().closed);
  expect([closed.filter(Boolean).map((fake) => fake?.name), shares.size]).toEqual([['c1', 'c2', 'c3', 'c4'], 16]);
});

test('E12 a connection of a proxy counts for the key of its latest request', () => {
  const { shares, connect, open } = setUp();
  const { connection } = connect();
  for (const key of ['a', 'b', 'a', 'a']) expect(shares.claim(connection, key)).toBeUndefined();
  expect([shares.size, open('a', 12).refused]).toEqual([1, 1]);
  shares.delete(connection);
  expect(open('a', 1).refused).toBe(0);
});

test('E12 a closed connection leaves nothing behind, also when its end is reported twice', () => {
  const { shares, connect, open } = setUp();
  const { kept } = open('a', 12);
  const { connection } = connect();
  for (const each of [...kept, connection, connection, ...kept]) shares.delete(each);
  expect([shares.size, open('b', 12).refused]).toEqual([0, 0]);
});
