/** For programs: serves the workers of a host as `hostler up` does, from a configuration of the same shape. */
import { parseServing } from '../config/host-config.js';
import type { HostConfig } from '../host/host-interface.js';
import { HostError } from '../kernel/errors.js';
import { warnProcess } from '../kernel/problems.js';
import { type ServedWorkers, type ServeWorkersOptions, serveWorkers } from './serve-workers.js';

export interface BrokerOptions extends Pick<ServeWorkersOptions, 'host' | 'dataDir' | 'folder' | 'clock' | 'onEvent'> {
  /** As in `hostler.json`; only `broker`, `keys` and `unlistedRole` are used. */
  readonly config: HostConfig;
  /** Called for each invalid key. An invalid key grants no access. */
  readonly onProblem?: (error: unknown) => void;
}

/** Rejects with a HostError when the configuration has no broker, or one that cannot be opened. */
export async function createBroker({
  config,
  onProblem = warnProcess,
  ...options
}: BrokerOptions): Promise<ServedWorkers> {
  const { broker: settings, keys, unlistedRole } = parseServing(config);
  if (!settings)
    throw new HostError('invalid_spec', 'broker: is missing', {
      field: 'broker',
      execution: 'not_executed',
      hint: 'an empty object is enough: {"broker": {}}',
    });
  return serveWorkers({
    ...options,
    settings,
    keys,
    onKeyProblem: onProblem,
    isRolelessAllowed: () => unlistedRole === 'allow',
  });
}
