/** The rules of both eras, for tests of channels and peers, which cannot import the eras. */
export { legacyEra } from '../../src/session/eras/legacy/legacy-era.js';
export { modernEra } from '../../src/session/eras/modern/modern-era.js';
