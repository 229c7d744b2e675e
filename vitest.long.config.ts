import os from 'node:os';
import path from 'node:path';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/long/**/*.long.ts'],
    testTimeout: 3_600_000,
    hookTimeout: 120_000,
    pool: 'forks',
    maxWorkers: 1,
    // Lanes use full counts and strict limits of time (test/tier.ts).
    env: { TEST_TIER: 'long', XDG_DATA_HOME: path.join(os.tmpdir(), `hostler-test-data-${process.pid}`) },
  },
});
