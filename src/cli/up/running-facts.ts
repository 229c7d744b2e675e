/** Parts of the facts that a Hostler reports about itself. */
import type { ServedWorkers } from '../../broker/serve-workers.js';
import { type UnlistedRole, unlistedRoleHint, unlistedRoleText } from '../../config/unlisted-roles.js';
import type { BrokerFacts } from '../control/control-protocol.js';

/** The limit of a manifest in broker/protocol/limits.ts, rounded up. */
const manifestMiB = 4;

/** Reports unlisted roles of keys in the configuration, and of workers whose keys are stored elsewhere. */
export function settingNotes(ofKeys: readonly UnlistedRole[], workers: ServedWorkers | undefined): readonly string[] {
  const known = new Set(ofKeys.map(({ role }) => role));
  const { unlistedRoles: ofBroker = [], tooLarge = [] } = workers?.status() ?? {};
  const ofWorkers = ofBroker.filter((role) => !known.has(role));
  return [
    ...ofKeys.map(({ key, role }) => `${unlistedRoleText(role)}: key '${key}' may use nothing; ${unlistedRoleHint}`),
    ...ofWorkers.map((role) => `${unlistedRoleText(role)}: its workers may use nothing; ${unlistedRoleHint}`),
    ...tooLarge.map((server) => `the tools of ${server} are larger than ${manifestMiB} MiB: workers do not see them`),
  ];
}

export function brokerFacts({ url, status }: ServedWorkers): BrokerFacts {
  const { engine, isConnected, connectedWorkers, waiting, running, oldestMs, uncertain } = status();
  return { engine, url, isConnected, connectedWorkers, waiting, running, oldestMs, uncertain };
}
