/** For tests of programs that embed Hostler: time and chance under control. */
export { FakeClock } from './kernel/fake-clock.js';
export { randomInt, seededRandom } from './kernel/random.js';
