/** For tests of programs that embed Hostler: a clock that tests advance, and seeded randomness. */
export { FakeClock } from './kernel/fake-clock.js';
export { randomInt, seededRandom } from './kernel/random.js';
