/** The settings that `hostler up` reads from its configuration, apart from the servers. */
import path from 'node:path';
import { configFaults, parseServing } from '../../config/host-config.js';
import { type HostError, isHostError, joinFaults } from '../../kernel/errors.js';
import type { UsableConfig } from '../trust/trusted-source.js';

export type Serving = ReturnType<typeof parseServing>;

/** Throws all faults of the configuration with their places. */
export function servingOf(config: unknown, locate: UsableConfig['locate']): Serving {
  try {
    return parseServing(config);
  } catch (error) {
    throw isHostError(error) ? joinFaults(configFaults(config, true).map(locate)) : error;
  }
}

/** Files that a sandboxed server must not read: the configuration, and the keys of the listeners and of the broker. */
export function hiddenPaths(config: string, { broker, listen }: Serving): string[] {
  const files = [listen.tls?.key, broker?.keyFile, broker?.listen.tls?.key].filter((file) => file !== undefined);
  return [path.resolve(config), ...files.map((file) => path.resolve(path.dirname(path.resolve(config)), file))];
}

/** Adds the file to an error of the configuration. `reason` sets exit code 1 instead of 2 (exit-codes.ts). */
export const inFile = (error: HostError, file: string): HostError =>
  error.details.reason === undefined ? error.with({ message: `${file}: ${error.message}`, reason: 'config' }) : error;
