import { defineConfig } from 'vitest/config';

/** Tests without processes, sockets and real time. */
export default defineConfig({
  test: {
    include: ['src/**/*.test.ts'],
    exclude: ['src/broker/**', 'src/cli/**'],
    testTimeout: 30_000,
    pool: 'forks',
    maxWorkers: 1,
  },
});
