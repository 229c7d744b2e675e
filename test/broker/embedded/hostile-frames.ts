/** Frames that no client of ours sends, from a seed. None of them may do anything. */
import { type Random, randomInt } from '../../../src/kernel/random.js';

export interface HostileFrame {
  readonly what: string;
  readonly bytes: Buffer;
  readonly isBinary: boolean;
  /** Whether whoever sends it is cut; the others are refused and may go on. */
  readonly cuts: boolean;
}

const valid = (n: number): string =>
  JSON.stringify({ kind: 'deliver', id: `evil-${n}`, type: 'request', to: 'host', ttlMs: 1000, body: { n } });

const badIds = ['', ' ', '../x', 'a/b', 'a\0b', 'ä', 'a'.repeat(129), 'a\nb', '{}', 'a b'];
const elsewhere = ['bob', 'alice', 'nobody', 'host2', 'w0'];

type Make = (random: Random, n: number) => string | Buffer;
const pick = <T>(random: Random, from: readonly T[]): T => from[randomInt(random, 0, from.length - 1)] as T;

/** Refused by id, or by number; whoever sent it may go on. */
const refused: Readonly<Record<string, Make>> = {
  'another destination': (random, n) =>
    JSON.stringify({ kind: 'deliver', id: `evil-${n}`, type: 'request', to: pick(random, elsewhere), body: {} }),
  'a reply of a worker': (random, n) =>
    JSON.stringify({ kind: 'deliver', id: `evil-${n}`, type: 'reply', to: pick(random, ['host', 'bob']), body: {} }),
  'another type': (random, n) =>
    JSON.stringify({
      kind: 'deliver',
      id: `evil-${n}`,
      type: pick(random, ['Request', '', 1, null]),
      to: 'host',
      body: {},
    }),
  'a body that is no object': (random, n) =>
    `{"kind":"deliver","id":"evil-${n}","type":"request","to":"host","body":${pick(random, ['1', '[]', 'null', '"x"', 'true'])}}`,
  'no body': (_, n) => `{"kind":"deliver","id":"evil-${n}","type":"request","to":"host"}`,
  'a time that is none': (random, n) =>
    `{"kind":"deliver","id":"evil-${n}","type":"request","to":"host","ttlMs":${pick(random, ['-1', '1e3', '1.5', '"1"', '99999999999', '{}'])},"body":{}}`,
  'too deep a body': (random, n) => {
    const depth = randomInt(random, 128, 400);
    return `{"kind":"deliver","id":"evil-${n}","type":"request","to":"host","body":{"x":${'['.repeat(depth)}${']'.repeat(depth)}}}`;
  },
  'the message of another': (random) =>
    JSON.stringify({ kind: 'ack', seq: randomInt(random, 1, 50), lease: `AAAAAAAA-${randomInt(random, 1, 9)}.1` }),
  'a release of what is not held': (random) =>
    JSON.stringify({ kind: 'release', seq: randomInt(random, 1, 50), lease: 'x-1.1', delayMs: 0, reason: 'x' }),
  'news of a worker': (random) => JSON.stringify({ kind: 'tell', to: pick(random, ['bob', 'host']), body: {} }),
  'a cancel elsewhere': (random, n) => JSON.stringify({ kind: 'cancel', to: pick(random, elsewhere), id: `good-${n}` }),
};

const cut: Readonly<Record<string, Make>> = {
  'half a frame': (random, n) => valid(n).slice(0, randomInt(random, 0, valid(n).length - 1)),
  'more than a frame': (random, n) => valid(n) + pick(random, ['x', '{}', ',', '\0', valid(n)]),
  'a member twice': (random, n) =>
    valid(n).replace(
      '{',
      `{${pick(random, ['"kind":"ack",', '"\\u006bind":"hello",', '"to":"bob",', '"id":"x",', '"body":{},'])}`,
    ),
  'a bad id': (random) =>
    JSON.stringify({ kind: 'deliver', id: pick(random, badIds), type: 'request', to: 'host', body: {} }),
  'a bad mailbox': (random, n) =>
    JSON.stringify({
      kind: 'deliver',
      id: `evil-${n}`,
      type: 'request',
      to: pick(random, ['', 'HOST', '../host', 'ho st', '.']),
      body: {},
    }),
  'an unknown kind': (random) =>
    JSON.stringify({ kind: pick(random, ['', 'Deliver', 'welcome', 'message', '__proto__', 'constructor', 7]) }),
  'an ack without a lease': (random) => pick(random, ['{"kind":"ack","seq":1}', '{"kind":"ack","seq":-1,"lease":"a"}']),
  'no object': (random) =>
    pick(random, ['', '[]', '1', 'null', '"hello"', 'true', '[{"kind":"subscribe"}]', '\ufeff{}']),
  noise: (random) =>
    Buffer.from(Array.from({ length: randomInt(random, 1, 200) }, () => randomInt(random, 32, 126))).toString(),
  bytes: (random) => Buffer.from(Array.from({ length: randomInt(random, 1, 64) }, () => randomInt(random, 0, 255))),
};

export function hostileFrame(random: Random, n: number, cuts: boolean): HostileFrame {
  const kinds = cuts ? cut : refused;
  const what = pick(random, Object.keys(kinds));
  const made = (kinds[what] as Make)(random, n);
  return { what, bytes: Buffer.from(made), isBinary: typeof made !== 'string', cuts };
}
