/** Invalid messages, generated from a seed. None of them may have an effect. */
import { type Random, randomInt } from '../../../src/kernel/random.js';

export interface HostileMessage {
  readonly what: string;
  readonly bytes: Buffer;
  readonly isBinary: boolean;
}

const valid = (n: number): string =>
  JSON.stringify({ v: 1, op: 'call', key: `evil-${n}`, deadlineMs: 1_000, tool: 't', args: { n } });

const badIds = ['', ' ', '../x', 'a/b', 'a\0b', 'ä', 'a'.repeat(129), 'a\nb', '{}', 'a b', 'a.b', '*', '>'];

type Make = (random: Random, n: number) => string | Buffer;
const pick = <T>(random: Random, from: readonly T[]): T => from[randomInt(random, 0, from.length - 1)] as T;
const changed = (n: number, changes: object): string => JSON.stringify({ ...JSON.parse(valid(n)), ...changes });
/** `valid` with this text as the value of a member. */
const withText = (n: number, member: string, text: string): string =>
  changed(n, { [member]: '@@' }).replace('"@@"', () => text);

const makers: Readonly<Record<string, Make>> = {
  'part of a message': (random, n) => valid(n).slice(0, randomInt(random, 0, valid(n).length - 1)),
  'more than a message': (random, n) => valid(n) + pick(random, ['x', '{}', ',', '\0', valid(n)]),
  'a member twice': (random, n) =>
    valid(n).replace('{', `{${pick(random, ['"op":"ack",', '"\\u006fp":"cancel",', '"key":"x",', '"tool":"x",'])}`),
  'a bad key': (random, n) => changed(n, { key: pick(random, badIds) }),
  'a key that is not a string': (random, n) => changed(n, { key: pick(random, [1, null, {}, [], true]) }),
  'a bad store id': (random, n) => changed(n, { sentBefore: { storeId: pick(random, badIds), hasReceipt: true } }),
  'arguments that are no object': (random, n) => withText(n, 'args', pick(random, ['1', '[]', 'null', '"x"', 'true'])),
  'too deep arguments': (random, n) => {
    const depth = randomInt(random, 512, 4_000);
    return withText(n, 'args', `{"x":${'['.repeat(depth)}${']'.repeat(depth)}}`);
  },
  'an invalid deadline': (random, n) =>
    withText(n, 'deadlineMs', pick(random, ['-1', '1.5', '"1"', '600001', '99999999999999999', '{}', 'null'])),
  'a long tool': (_random, n) => changed(n, { tool: 't'.repeat(257) }),
  'no tool': (random, n) => changed(n, { tool: pick(random, [undefined, '', 7]) }),
  'another version': (random, n) => changed(n, { v: pick(random, [0, 2, '1', null, undefined]) }),
  'an unknown operation': (random) =>
    JSON.stringify({ v: 1, op: pick(random, ['', 'Call', 'welcome', 'reply', '__proto__', 'constructor', 7]) }),
  'a reply': () => '{"v":1,"op":"reply","key":"k1","body":{"era":"legacy","result":{}}}',
  'too many keys': (random) =>
    JSON.stringify({ v: 1, op: pick(random, ['ack', 'ask']), id: 'a', keys: Array.from({ length: 257 }, () => 'k') }),
  'bad keys': (random) => JSON.stringify({ v: 1, op: 'ack', keys: [pick(random, badIds)] }),
  'keys that are no list': (random) => `{"v":1,"op":"ack","keys":${pick(random, ['{}', '"k"', '1', 'null'])}}`,
  'an ask without an id': () => '{"v":1,"op":"ask","keys":[]}',
  'no object': (random) => pick(random, ['', '[]', '1', 'null', '"hello"', 'true', '[{"v":1}]', '\ufeff{}']),
  noise: (random) =>
    Buffer.from(Array.from({ length: randomInt(random, 1, 200) }, () => randomInt(random, 32, 126))).toString(),
  'bytes as text': (random) =>
    Buffer.concat([Buffer.from('{"v":1,"op":"cancel","key":"'), Buffer.from([0xff, randomInt(random, 128, 255)])]),
};

export function hostileMessage(random: Random, n: number): HostileMessage {
  const what = pick(random, [...Object.keys(makers), 'binary']);
  const made = what === 'binary' ? Buffer.from(valid(n)) : (makers[what] as Make)(random, n);
  return { what, bytes: Buffer.from(made), isBinary: what === 'binary' };
}
