import os from 'node:os';
import path from 'node:path';
import { defineConfig } from 'vitest/config';

const shared = {
  testTimeout: 60_000,
  hookTimeout: 60_000,
  pool: 'forks',
  // Two cores; tests with child processes spend much of their time waiting, so a third worker uses what would be idle.
  maxWorkers: 3,
  // Hosts register in the data folder of the user; those of a test run must mix neither with the user's own nor with another run's.
  env: { XDG_DATA_HOME: path.join(os.tmpdir(), `hostler-test-data-${process.pid}`) },
} as const;

export default defineConfig({
  test: {
    projects: [
      // Projects run in the order of their names: the long files start first, and short unit tests fill the end of the run.
      { test: { ...shared, name: 'system', include: ['test/**/*.test.ts'] } },
      // Unit tests use no process, socket or global state, so their files share a worker: 37 s of CPU time instead of 93 s.
      { test: { ...shared, name: 'unit', include: ['src/**/*.test.ts'], isolate: false } },
    ],
  },
});
