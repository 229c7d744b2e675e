/** Runs one command with a connection to the running Hostler that the command means. */
import type { ParsedArgs } from '../command.js';
import { hostDataDir } from '../config/running-hosts.js';
import { type ControlClient, connectControl } from './control-client.js';
import { controlPath } from './control-protocol.js';

export async function withControlClient<T>(args: ParsedArgs, use: (client: ControlClient) => Promise<T>): Promise<T> {
  const client = await connectControl(controlPath(await hostDataDir(args)));
  try {
    return await use(client);
  } finally {
    client.close();
  }
}
