/**
 * What the commands that speak to the running Hostler have in common: finding it, and ending with Ctrl-C.
 */
import { dataFolder } from '../config/folders.js';
import { HostError } from '../kernel/errors.js';
import type { Words } from './command.js';
import { type ControlClient, connectControl } from './control/control-client.js';
import { controlPath } from './control/control-path.js';

export function dataDirOf(words: Words, env: NodeJS.ProcessEnv = process.env): string {
  const folder = words.text('data-dir') ?? dataFolder(env);
  if (folder !== undefined) return folder;
  throw new HostError('invalid_spec', 'there is no place for the data directory: HOME is not set', {
    field: '--data-dir',
    reason: 'no_home',
    hint: 'give one with --data-dir',
  });
}

/** Hands the connection over and closes it afterwards. */
export async function withRunning<T>(words: Words, use: (client: ControlClient) => Promise<T>): Promise<T> {
  const client = await connectControl(controlPath(dataDirOf(words)));
  try {
    return await use(client);
  } finally {
    client.close();
  }
}

/** For what goes on until Ctrl-C: then the connection is closed, and that is no failure. */
export async function untilInterrupted(client: ControlClient, work: Promise<unknown>): Promise<void> {
  let wasInterrupted = false;
  const interrupt = () => {
    wasInterrupted = true;
    client.close();
  };
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  try {
    await work;
  } catch (error) {
    if (!wasInterrupted) throw error;
  } finally {
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
}
