/** Connects a command to the running Hostler that its arguments choose. */
import type { ParsedArgs } from '../command.js';
import { hostDataDir, type OtherHost } from '../config/running-hosts.js';
import { type ControlClient, connectControl } from './control-client.js';
import { controlPath } from './control-protocol.js';

export async function withControlClient<T>(
  args: ParsedArgs,
  other: OtherHost,
  use: (client: ControlClient) => Promise<T>,
): Promise<T> {
  const client = await connectControl(controlPath(await hostDataDir(args, other)));
  try {
    return await use(client);
  } finally {
    client.close();
  }
}
