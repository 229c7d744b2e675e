/**
 * The parts that a gateway is joined from. Those that not every start needs are loaded when they are asked for: what is not used
 * does not slow it down.
 * Not here: joining them (gateway.ts).
 */
import { parseKeys } from '../config/keys.js';
import { createBridge } from './bridge/bridge.js';
import { Keyring } from './keys/keys.js';
import { readOrCreateLocalKey } from './keys/local-key.js';
import { healthz, Readiness } from './metrics/health.js';
import { createRouter } from './routing/router.js';

export const defaultParts = {
  createRouter,
  createBridge,
  Keyring,
  parseKeys,
  readOrCreateLocalKey,
  healthz,
  Readiness,
  http: async () => (await import('./http/http-ingress.js')).createHttpIngress,
  stdio: async () => (await import('./stdio/stdio-ingress.js')).createStdioIngress,
  metrics: async () => (await import('./metrics/metrics.js')).createMetrics,
};

export type GatewayParts = typeof defaultParts;
