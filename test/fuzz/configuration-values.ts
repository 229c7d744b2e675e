/** Random values for any field of a configuration, as a file or an embedder may give them: wrong, hostile, and sometimes valid. */
import { type Random, randomInt } from '../../src/kernel/random.js';

const pick = <T>(random: Random, of: readonly T[]): T => of[randomInt(random, 0, of.length - 1)] as T;

const names = ['command', 'args', 'env', 'url', 'headers', 'allow', 'calls', 'window', 'hash', 'role', 'max', 'start'];
const specialNames = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '',
  ' ',
  '\0',
  '\ud800',
  '\u202e',
  'a.b',
  'x'.repeat(5_000),
];

const urls = [
  ...['example.com/mcp', 'http://', 'http:///', 'https://', '//x', 'http:/x', 'http:x', 'http://[::1', 'http://a b'],
  ...['http://%zz', 'http://x:99999', 'http://x:-1', 'http://user:pw@x/', 'ftp://x', 'javascript:alert(1)', 'ws://x'],
  ...['file:///etc/passwd', 'http://\0', 'HTTP://EXAMPLE.COM', 'http://a:80:80', 'http://[fe80::1%25eth0]/', 'data:,x'],
  ...[
    'http://.',
    'http://..',
    'http://*',
    'http://999.999.999.999',
    ' http://x ',
    'http://x\n',
    '\thttp://x',
    '?',
    '#',
  ],
  ...['http://xn--/', 'http://\ud800', `http://${'a'.repeat(300)}.com`, 'https://example.com/mcp', 'http://x/?token=s'],
];
const durations = [
  '-5s',
  '0',
  '0s',
  '99999999999999h',
  '1e9',
  '-1',
  'NaN',
  '5 m',
  '1.5s',
  '0.0001ms',
  '24h',
  '25h',
  '٣s',
];
const texts = [
  '',
  ' ',
  '\0',
  'a\0b',
  '\ud800',
  '\udfff\ud800',
  '\u202eabc',
  'x'.repeat(200_000),
  '\n',
  '*',
  '*/*',
  'ok/*',
  '/',
];
/** `{…}` with a dollar in front. */
const placeholders = [
  ...['env:toString', 'env:__proto__', 'env:', 'env:HOME', 'file:', 'file:/'].map((text) => `$\{${text}}`),
  '$' + '{',
];
const numbers = [0, -0, 1, -1, 0.5, 1e308, -1e308, 2 ** 31, 2 ** 53, 65_536, 1e-300, Number.NaN, Infinity, -Infinity];

const fail = (): never => {
  throw new TypeError('code of the embedder');
};
const throwingProxy = (): object =>
  new Proxy({}, { get: fail, has: fail, ownKeys: fail, getPrototypeOf: fail, getOwnPropertyDescriptor: fail });
function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}
function cycle(): object {
  const value: Record<string, unknown> = { command: 'node' };
  value.env = value;
  return value;
}
function doubled(): unknown {
  let value: unknown = 1;
  for (let level = 0; level < 60; level++) value = { env: value, headers: value };
  return value;
}
const deep = (levels: number): unknown => {
  let value: unknown = 1;
  for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { a: value };
  return value;
};

/** Objects that only an embedder can pass. Created anew for each use. */
const liveObjects: ReadonlyArray<() => unknown> = [
  ...[throwingProxy, revoked, cycle, doubled, () => Symbol('x'), () => 1n, () => fail, () => undefined],
  ...[() => new Date(Number.NaN), () => new Map([['a', 1]]), () => new Set([1]), () => /x/, () => Buffer.from('x')],
  ...[
    () => Object.create(null) as unknown,
    () => Object.create({ command: 'node' }) as unknown,
    () => new Proxy([], {}),
  ],
  ...[
    () => Promise.resolve(),
    () => Object.fromEntries([['then', fail]]),
    () => new (class Entry {})(),
    () => new Array(2 ** 32 - 1),
  ],
  () => ({ toString: fail, valueOf: fail, toJSON: fail, [Symbol.toPrimitive]: fail }),
  () => Object.defineProperty({}, 'command', { get: fail, enumerable: true }),
  () => Object.defineProperty([1], 'map', { value: fail }),
  () => Object.defineProperty([1], Symbol.iterator, { value: fail }),
  () => Object.assign([1], { length: 3 }),
  () => ({ length: 1e9, 0: 'x' }),
];

/** Values that a file may contain too. */
const plain = (random: Random): unknown => {
  const kinds: ReadonlyArray<() => unknown> = [
    ...[
      () => pick(random, urls),
      () => pick(random, durations),
      () => pick(random, texts),
      () => pick(random, numbers),
    ],
    ...[() => pick(random, placeholders), () => pick(random, [null, true, false]), () => pick(random, specialNames)],
    () => deep(pick(random, [1, 5, 63, 64, 65, 200])),
    () => Array.from({ length: pick(random, [0, 1, 20, 10_001]) }, () => 'x'),
    () => Object.fromEntries(Array.from({ length: pick(random, [0, 1, 20, 10_001]) }, (_, i) => [`k${i}`, i])),
    () => 'node',
  ];
  return pick(random, kinds)();
};

export const valueFor = (random: Random, depth = 0): unknown => {
  const roll = random();
  if (roll < 0.25) return pick(random, liveObjects)();
  if (roll < 0.65 || depth > 3) return plain(random);
  const inner = () => valueFor(random, depth + 1);
  if (roll < 0.75) return Array.from({ length: randomInt(random, 0, 3) }, inner);
  return Object.fromEntries(Array.from({ length: randomInt(random, 0, 3) }, () => [nameFor(random), inner()]));
};

export const plainFor = plain;

export const nameFor = (random: Random): string => (random() < 0.5 ? pick(random, names) : pick(random, specialNames));

/** JSON fragments that JSON.stringify never writes. */
export const rawJson = [
  '1e999',
  '-1e999',
  '-0',
  '0.1e-400',
  '"\\ud800"',
  '"\\u0000"',
  '{"__proto__":1}',
  `${'['.repeat(80)}${']'.repeat(80)}`,
  '{}',
  '[]',
  '[1,]',
  '// x\n1',
];
