/** `hostler enable|disable`: puts a server or a tool into or out of service, until it is changed back. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, hostOptions, jsonOption } from './command.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText } from './output/print.js';

const textChars = 1_000;

const command = (name: 'enable' | 'disable'): Command => ({
  name,
  usage: 'SERVER[/TOOL] [--json]',
  example: `${name} memory/delete_entities`,
  options: { ...jsonOption, ...hostOptions },
  positionals: [1, 1],
  run: (args) =>
    withControlClient(args, 'refuse', async (client) => {
      const about = args.positionals[0];
      const { off, isServerDisabled, ...changed } = (await client.request(name, { about })) as Switched;
      const { server, tool } = changed;
      const isOff = off !== undefined || isServerDisabled === true;
      if (args.has('json')) printJson({ ...changed, isEnabled: name === 'enable' && !isOff });
      else if (isServerDisabled)
        printText(`${server}/${tool}: still disabled, because its server is; run: hostler enable ${server}`);
      else if (off) printText(stillOff(server, off));
      else printText(`${[server, tool].filter(Boolean).join('/')}: ${name}d`);
      return isOff ? EXIT.failed : EXIT.done;
    }),
});

interface Switched {
  readonly server: string;
  readonly tool?: string;
  /** The tool is still out of service, because `hostler disable` took out its whole server. */
  readonly isServerDisabled?: boolean;
  /** Set if the entry in the configuration still keeps the server out of service. */
  readonly off?: { readonly config: string; readonly problem: { readonly message: string } | null };
}

const stillOff = (server: string, { config, problem }: NonNullable<Switched['off']>): string =>
  neutraliseLine(
    `${server}: still ${problem ? 'refused' : 'disabled'} by its entry in ${config}${problem ? `: ${problem.message}` : ''}`,
    textChars,
  );

export const enable = command('enable');
export const disable = command('disable');
