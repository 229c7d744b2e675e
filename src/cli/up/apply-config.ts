/**
 * Applies an edited configuration: everything is parsed first, then keys, roles and servers change in one tick.
 * Not here: watching the file (config/watch-config.ts), logging (run-up.ts).
 *
 * Invariants: an error while parsing applies nothing. At no time does a key or a worker have more rights than in the old or in the
 * new configuration.
 */
import type { ServedWorkers } from '../../broker/serve-workers.js';
import type { HostSettings } from '../../config/host-config.js';
import { parseKeys } from '../../config/keys.js';
import type { ListenSettings } from '../../config/listen-settings.js';
import type { Gateway } from '../../gateway/gateway.js';
import type { Host } from '../../host/host.js';
import type { HostConfig } from '../../host/host-interface.js';

export interface ConfiguredParts {
  readonly host: Pick<Host, 'reconfigure'>;
  readonly gateway: Pick<Gateway, 'prepareKeys' | 'allow'>;
  readonly workers: Pick<ServedWorkers, 'prepareKeys'> | undefined;
}

export interface EditedConfig {
  readonly config: HostConfig;
  readonly keys: HostSettings['keys'];
  readonly listen: ListenSettings;
  /** Called in the same tick as the change. Must not throw. */
  readonly swap: () => void;
}

/**
 * Rejects when the edit is invalid, with nothing changed. Resolves when removed servers have stopped. `atBroker` is the rest of the
 * work at the broker; the new keys are valid even if it rejects.
 */
export async function applyConfig(
  { host, gateway, workers }: ConfiguredParts,
  { config, keys, listen, swap }: EditedConfig,
): Promise<{ readonly atBroker: Promise<void> }> {
  const gatewayKeys = gateway.prepareKeys(keys);
  // The gateway has reported problems of keys.
  const rekeyWorkers = workers?.prepareKeys(parseKeys(keys, () => {}));
  let atBroker = Promise.resolve();
  await host.reconfigure(config, {
    swap() {
      gatewayKeys.swap();
      gateway.allow(listen);
      swap();
      if (rekeyWorkers) atBroker = rekeyWorkers();
      // Awaited later, after removed servers have stopped: not an unhandled rejection until then.
      atBroker.catch(() => {});
    },
    announce: () => gatewayKeys.announce(),
  });
  return { atBroker };
}
