/**
 * The pipeline of a host over servers that the test makes. Each test gives only the parts that it needs.
 */
import { Audit } from '../../src/host/audit.js';
import { Operations, type OperationsParts } from '../../src/host/operations.js';
import { KeepAlive } from '../../src/kernel/clock.js';
import { callCachePlan, listCachePlan, ResponseCache } from '../../src/policy/cache.js';
import { memoryPinStore } from '../../src/policy/pin-records.js';
import { Pins } from '../../src/policy/pins.js';
import { CallBudgets } from '../../src/policy/rate-limit.js';
import { ReconnectBackoff } from '../../src/policy/retry.js';
import { ServerThrottle, ToolThrottle } from '../../src/policy/throttles.js';

export function fakeOperations(
  parts: Partial<OperationsParts> & Pick<OperationsParts, 'clock' | 'serverOf'>,
): Operations {
  const { clock, serverOf } = parts;
  return new Operations({
    guards: () => [],
    pins: new Pins({ store: memoryPinStore() }),
    budgets: new CallBudgets(clock),
    cache: new ResponseCache(clock, callCachePlan),
    lists: new ResponseCache(clock, listCachePlan),
    throttle: new ToolThrottle(clock),
    serverThrottle: new ServerThrottle(clock),
    reconnects: new ReconnectBackoff(clock, () => 0.5),
    findServer: serverOf,
    targetOf: (server) => server,
    mustBeOpen: () => {},
    exchange: () => Promise.reject(new Error('this host has no lists')),
    clean: (text) => text,
    audit: new Audit({ hasCallListeners: false, emit: () => {} }, clock),
    alive: new KeepAlive(),
    ...parts,
  });
}
