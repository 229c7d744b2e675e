/**
 * Applies an edited configuration: everything is parsed first, then keys, roles and servers change in one tick.
 * Not here: watching the file (config/watch-config.ts), logging (run-up.ts).
 * Invariants: a parse error changes nothing. A key or worker never has more rights than in the old or the new configuration.
 */
import type { ServedWorkers } from '../../broker/serve-workers.js';
import type { HostSettings } from '../../config/host-config.js';
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
  /** Runs in the same tick as the change. It must not throw. */
  readonly swap: () => void;
}

/**
 * Rejects if the edit is invalid; nothing has changed then. Resolves when removed servers have stopped. `atBroker` settles when
 * the broker has applied the keys; the new keys are valid even if it rejects.
 */
export async function applyConfig(
  { host, gateway, workers }: ConfiguredParts,
  { config, keys, listen, swap }: EditedConfig,
): Promise<{ readonly atBroker: Promise<void> }> {
  const gatewayKeys = gateway.prepareKeys(keys);
  const rekeyWorkers = workers?.prepareKeys(keys);
  let atBroker = Promise.resolve();
  await host.reconfigure(config, {
    swap() {
      gatewayKeys.swap();
      gateway.allow(listen);
      swap();
      if (rekeyWorkers) atBroker = rekeyWorkers();
      // The caller awaits `atBroker` only after removed servers have stopped. Until then a rejection would be unhandled.
      atBroker.catch(() => {});
    },
    announce: () => gatewayKeys.announce(),
  });
  return { atBroker };
}
