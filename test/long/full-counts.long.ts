/**
 * Test files of the short tier that have no lane of their own, at full count and with strict limits of time. Run
 * it on a machine that does nothing else.
 */
import { describe } from 'vitest';

const files = {
  'attacks/bombs': () => import('../attacks/bombs.test.js'),
  'attacks/passthrough': () => import('../attacks/passthrough.test.js'),
  'broker/e2e/fairness': () => import('../broker/e2e/fairness.test.js'),
  'broker/e2e/large-replies': () => import('../broker/e2e/large-replies.test.js'),
  'broker/e2e/limits': () => import('../broker/e2e/limits.test.js'),
  'broker/e2e/secrets': () => import('../broker/e2e/secrets.test.js'),
  'broker/nats/accounts': () => import('../broker/nats/accounts.test.js'),
  'broker/nats/several-hosts': () => import('../broker/nats/several-hosts.test.js'),
  'broker/nats/sizes': () => import('../broker/nats/sizes.test.js'),
  'broker/store/failed-disk': () => import('../broker/store/failed-disk.test.js'),
  'broker/store/kill': () => import('../broker/store/kill.test.js'),
  'broker/store/one-writer': () => import('../broker/store/one-writer.test.js'),
  'broker/websocket/hostile': () => import('../broker/websocket/hostile.test.js'),
  'cli/styled': () => import('../../src/cli/output/styled.test.js'),
  'cli/apply-config': () => import('../../src/cli/up/apply-config.test.js'),
  'cli/looks': () => import('../cli/looks.test.js'),
  'contract/real-servers': () => import('../contract/real-servers.test.js'),
  'fuzz/configuration': () => import('../fuzz/configuration.test.js'),
  'fuzz/f2-answers': () => import('../fuzz/f2-answers.test.js'),
  'fuzz/redact-cost': () => import('../fuzz/redact-cost.test.js'),
  'fuzz/sse-parser-cost': () => import('../fuzz/sse-parser-cost.test.js'),
  'process/stop': () => import('../process/stop.test.js'),
  'process/streams': () => import('../process/streams.test.js'),
  'process/survival': () => import('../process/survival.test.js'),
};

// Each file is a suite of its own, so that the hooks of one file are not run for the tests of another.
for (const [name, load] of Object.entries(files))
  describe(name, async () => {
    await load();
  });
