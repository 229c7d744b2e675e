/**
 * A configuration that was read replaces the present one: rules, what changes with them, and servers.
 * Not here: reading it, and whose turn it is (host.ts); what becomes of each server (configured-servers.ts).
 *
 * Invariant: everything changes in one tick, and nothing is thrown. No principal is ever seen with rules of one configuration and
 * a role, or a server, of another.
 */
import type { HostSettings } from '../config/host-config.js';
import { HostError } from '../kernel/errors.js';
import type { Reconfigured } from './configured-servers.js';
import type { JointChange } from './host-interface.js';
import type { HostParts } from './host-parts.js';

type ChangedParts = Pick<
  HostParts,
  'audit' | 'catalogue' | 'configured' | 'listings' | 'onConfigProblem' | 'onProblem' | 'rules' | 'servers'
>;

/** Resolves when servers that were taken out are gone. */
export function changeConfiguration(
  parts: ChangedParts,
  settings: HostSettings,
  tracing: HostParts['audit']['tracing'],
  joint: JointChange | undefined,
): Promise<Reconfigured> {
  const { rules, configured, audit, servers, onProblem } = parts;
  audit.tracing = tracing;
  const before = servers.names();
  const closed = rules.configure(settings, configured.stale(settings));
  perform(joint?.swap, onProblem);
  const applied = configured.apply(settings, (server) => rules.changed(server));
  showChangedRules(parts, before);
  perform(joint?.announce, onProblem);
  for (const server of closed) parts.onConfigProblem(outOfDate(server));
  return applied;
}

/** Other rules decide from now on what each principal sees of these servers. */
export function showChangedRules(
  { catalogue, listings, servers }: Pick<HostParts, 'catalogue' | 'listings' | 'servers'>,
  names: readonly string[] = servers.names(),
): void {
  catalogue.dropAll();
  for (const server of names) listings.changed(server);
}

function perform(step: (() => void) | undefined, onProblem: (error: unknown) => void): void {
  try {
    step?.();
  } catch (error) {
    onProblem(error);
  }
}

const outOfDate = (server: string): HostError =>
  new HostError(
    'invalid_spec',
    `mcpServers.${server}: cannot be read, and roles or keys changed too: only the operator may use the server`,
    {
      server,
      field: `mcpServers.${server}`,
      execution: 'not_executed',
      hint: 'correct the entry; until then the server runs as it was',
    },
  );
