/**
 * An edited configuration → what runs: everything is read first, then everything that decides about rights changes in one tick.
 * Not here: when to read the file (watch-config.ts), what to say about it (up.ts).
 *
 * Invariants: whatever is thrown while the edit is read, nothing was applied; at no time does a key, or a worker, have more rights
 * than in the old or in the new configuration.
 */
import type { ServedWorkers } from '../broker/serve-workers.js';
import type { HostSettings } from '../config/host-config.js';
import { parseKeys } from '../config/keys.js';
import type { ListenSettings } from '../config/listen-settings.js';
import type { Gateway } from '../gateway/gateway.js';
import type { Host } from '../host/host.js';
import type { HostConfig } from '../host/host-interface.js';

export interface ConfiguredParts {
  readonly host: Pick<Host, 'reconfigure'>;
  readonly gateway: Pick<Gateway, 'prepareKeys' | 'allow'>;
  readonly workers: Pick<ServedWorkers, 'prepareKeys'> | undefined;
}

export interface EditedConfig {
  readonly config: HostConfig;
  readonly keys: HostSettings['keys'];
  readonly listen: ListenSettings;
  /** Part of the change: called in the same tick. Must not throw. */
  readonly swap: () => void;
}

/**
 * Rejects when the edit cannot be used, and nothing has changed then. Resolves when removed servers have stopped. `atBroker` is the
 * rest of the work at the broker; if it rejects, the new keys are valid all the same.
 */
export async function applyConfig(
  { host, gateway, workers }: ConfiguredParts,
  { config, keys, listen, swap }: EditedConfig,
): Promise<{ readonly atBroker: Promise<void> }> {
  const gatewayKeys = gateway.prepareKeys(keys);
  // The gateway has reported the mistakes in keys.
  const rekeyWorkers = workers?.prepareKeys(parseKeys(keys, () => {}));
  let atBroker = Promise.resolve();
  await host.reconfigure(config, {
    swap() {
      gatewayKeys.swap();
      gateway.allow(listen);
      swap();
      if (rekeyWorkers) atBroker = rekeyWorkers();
      // The caller awaits it only after removed servers have stopped: until then a rejection is not unhandled.
      atBroker.catch(() => {});
    },
    announce: () => gatewayKeys.announce(),
  });
  return { atBroker };
}
