import { defineConfig } from 'vitest/config';

/** Tests without processes, sockets and real time. */
export default defineConfig({
  test: {
    // Folders whose tests can notice a mistake in the mutated ones: a mutant outside functions runs all of these.
    include: ['session', 'transports', 'host', 'policy', 'supervisor', 'wire'].map(
      (name) => `src/${name}/**/*.test.ts`,
    ),
    // A test that hangs has noticed the mutant. As in `npm test`: on a busy machine a slow test must not look like one that hangs.
    testTimeout: 60_000,
    maxWorkers: 1,
    // One import of the source for all files of a run. No static mutant is tested, so nothing depends on a fresh import.
    isolate: false,
  },
});
