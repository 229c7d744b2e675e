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
 * Rejects when the edit cannot be used; then nothing changed. Resolves when servers that were taken out are gone, with what is left
 * to do at the broker: its rejection changes nothing about which keys count.
 */
export async function applyConfig(
  { host, gateway, workers }: ConfiguredParts,
  { config, keys, listen, swap }: EditedConfig,
): Promise<{ readonly atBroker: Promise<void> }> {
  const ofGateway = gateway.prepareKeys(keys);
  // What is wrong with a key was told by the gateway.
  const rekeyWorkers = workers?.prepareKeys(parseKeys(keys, () => {}));
  let atBroker = Promise.resolve();
  await host.reconfigure(config, {
    swap() {
      ofGateway.swap();
      gateway.allow(listen);
      swap();
      if (rekeyWorkers) atBroker = rekeyWorkers();
      // The caller looks at it later, when servers are gone.
      atBroker.catch(() => {});
    },
    announce: () => ofGateway.announce(),
  });
  return { atBroker };
}
