/** Random decisions from a seed. */
import { type Random, randomInt } from '../../src/kernel/random.js';

export class Chance {
  readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  /** True with this probability. */
  happens(rate: number): boolean {
    return this.random() < rate;
  }

  int(from: number, to: number): number {
    return randomInt(this.random, from, to);
  }

  oneOf<T>(choices: readonly T[]): T {
    return choices[this.int(0, choices.length - 1)] as T;
  }
}
