/** Randomness as an argument, so that a printed seed replays a run. */
import { randomFillSync } from 'node:crypto';

/** Uniform in [0, 1). */
export type Random = () => number;

export const systemRandom: Random = Math.random;

/** A small seeded generator (mulberry32) for tests and simulation. Not for secrets. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export const randomInt = (random: Random, from: number, to: number): number =>
  from + Math.floor(random() * (to - from + 1));

export type NewId = () => string;

const idBytes = 16;
/** Random bytes for many ids at once, because a system call costs far more than its bytes. */
const drawn = Buffer.allocUnsafeSlow(256 * idBytes);
let usedBytes = drawn.length;

/** 128 unguessable bits, safe in file names, headers and URLs. */
export const newId: NewId = () => {
  if (usedBytes === drawn.length) {
    randomFillSync(drawn);
    usedBytes = 0;
  }
  usedBytes += idBytes;
  return drawn.toString('base64url', usedBytes - idBytes, usedBytes);
};
