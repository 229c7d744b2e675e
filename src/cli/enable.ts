/** `hostler enable|disable`: puts a server or a tool into or out of service, until it is changed back. */
import { type Command, hostOptions, jsonOption } from './command.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText } from './output/print.js';

const command = (name: 'enable' | 'disable'): Command => ({
  name,
  usage: 'SERVER[/TOOL] [--json]',
  example: `${name} memory/delete_entities`,
  options: { ...jsonOption, ...hostOptions },
  positionals: [1, 1],
  run: (args) =>
    withControlClient(args, 'refuse', async (client) => {
      const changed = (await client.request(name, { about: args.positionals[0] })) as { server: string; tool?: string };
      const isEnabled = name === 'enable';
      if (args.has('json')) printJson({ ...changed, isEnabled });
      else printText(`${[changed.server, changed.tool].filter(Boolean).join('/')}: ${name}d`);
      return EXIT.done;
    }),
});

export const enable = command('enable');
export const disable = command('disable');
