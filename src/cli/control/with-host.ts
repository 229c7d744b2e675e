/**
 * Runs one command with the running Hostler, or, if none runs, with a host in this process that ends with the command.
 * Invariant: a command is repeated only if none of its requests was answered, so that no call is sent twice.
 */
import { isHostError } from '../../kernel/errors.js';
import type { ParsedArgs } from '../command.js';
import { hostDataDir } from '../config/running-hosts.js';
import { connectControl, type HostClient } from './control-client.js';
import { controlPath } from './control-protocol.js';

const absent: readonly unknown[] = ['ENOENT', 'ECONNREFUSED'];
/** Commands that find no Hostler run one after the other: when one ends, the others try again. */
const triesMax = 1_000;

/** The first request of `use` must have no side effects. */
export async function withHost<T>(args: ParsedArgs, use: (client: HostClient) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    let isAnswered = false;
    try {
      const client = await open(args);
      const request: HostClient['request'] = async (...words) => {
        const result = await client.request(...words);
        isAnswered = true;
        return result;
      };
      try {
        return await use({ ...client, request });
      } finally {
        await client.close();
      }
    } catch (error) {
      if (isAnswered || !isTaken(error) || tries === triesMax) throw error;
    }
  }
}

async function open(args: ParsedArgs): Promise<HostClient> {
  try {
    return await connectControl(controlPath(await hostDataDir(args, 'ignore')));
  } catch (error) {
    if (!isHostError(error) || error.code !== 'connect_failed' || !absent.includes(error.details.reason)) throw error;
  }
  return (await import('../up/local-host.js')).openLocalHost(args);
}

/** Another command has just taken the data directory, or has ended. */
const isTaken = (error: unknown): boolean =>
  isHostError(error) && (error.code === 'transport' || error.details.reason === 'in_use');
