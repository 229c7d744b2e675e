/**
 * What an application may say about a connection that it attaches: the options of spawn, and the keys of a configuration entry
 * that say how a server is treated.
 * Not here: what may be attached (transports/attached/attachable.ts), what becomes of it (servers.ts).
 *
 * Invariant: an option that could not be kept without a factory is refused, never ignored.
 */
import type { z } from 'zod';
import { definitionOf, type ServerDefinition, type treatment, treatmentKeys } from '../config/server-definition.js';
import { type AttachedServerSpec, checkServerName } from '../config/server-spec.js';
import { HostError } from '../kernel/errors.js';
import { type Attachable, type AttachFactory, attachProblem } from '../transports/attached/attachable.js';
import { notAttachable } from '../transports/attached/attached-errors.js';
import { checkOptions, invalidOption, mergeOptions, placeOf, type SpawnOptions } from './spawn-options.js';

/** As in a configuration entry. */
type Treatment = Readonly<Partial<Omit<z.input<typeof treatment>, 'enabled' | keyof SpawnOptions>>>;

/** Without a factory `lazy`, `isolation: "per-client"`, `keepAlive` and `restart` are refused. */
export interface AttachOptions extends SpawnOptions, Treatment {}

/** Beside the options of spawn. What is not enabled is simply not attached. */
const treatmentNames = [...treatmentKeys].filter((key) => key !== 'enabled' && key !== 'lazy' && key !== 'card');

/** Throws `invalid_spec`; the object is looked at and not used. */
export function attachDefinition(
  name: string,
  source: Attachable | AttachFactory,
  options: AttachOptions,
): ServerDefinition {
  checkServerName(name);
  checkOptions(name, options, 'attach', treatmentNames);
  const hasFactory = typeof source === 'function';
  const problem = hasFactory ? undefined : attachProblem(source);
  if (problem !== undefined) throw notAttachable(name, problem);
  const own = Object.entries(options).filter(([option]) => treatmentKeys.has(option));
  const { merged, said } = mergeOptions(Object.fromEntries(own), options);
  if (!hasFactory) {
    const optionOf = (key: string) => [...said].find(([path]) => path.split('.')[0] === key)?.[1] ?? key;
    refuseRestarts(name, merged, optionOf);
    merged.keepAlive = 0;
  }
  // A function of its own each time: to attach the same factory again is not the same definition again.
  const take = hasFactory ? () => source() : () => source;
  const spec: AttachedServerSpec = Object.freeze({ name, transport: 'attached', hasFactory, take });
  return definitionOf(spec, merged, false, placeOf(name, said, 'correct it and attach the server again'));
}

/** One object is one connection: it is there from the start, for every client, until it is closed. */
function refuseRestarts(name: string, entry: Readonly<Record<string, unknown>>, optionOf: (key: string) => string) {
  const { lazy, isolation, keepAlive, restart } = entry;
  const isRefused: Readonly<Record<string, boolean>> = {
    lazy: lazy === true,
    isolation: isolation === 'per-client',
    keepAlive: keepAlive !== undefined && keepAlive !== 0 && keepAlive !== '0',
    restart: restart !== undefined,
  };
  for (const [key, refused] of Object.entries(isRefused)) {
    if (refused)
      throw invalidOption(
        name,
        optionOf(key),
        'needs a factory',
        'attach a function that makes a new object each time',
      );
  }
}

/** `detach` is for what was attached. */
export const notAttached = (name: string): HostError =>
  new HostError('invalid_spec', `server '${name}' is not attached`, {
    server: name,
    field: 'name',
    execution: 'not_executed',
    hint: 'remove a server of the configuration there; stop ends the run of any server',
  });

/** A reload closes and opens again, which one object allows only once. */
export const notReloadable = (name: string): HostError =>
  new HostError('invalid_request', `server '${name}' was attached without a factory and cannot be started again`, {
    server: name,
    reason: 'one_shot',
    execution: 'not_executed',
    hint: `attach a new connection as '${name}' with replace, or attach a factory`,
  });
