/** `hostler start|stop|reload`: changes one server and prints its new state. */
import type { StatusRow } from '../host/status.js';
import { type Command, hostOptions, jsonOption } from './command.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printLines } from './output/print.js';
import { stateSpan } from './output/states.js';

const command = (name: 'start' | 'stop' | 'reload'): Command => ({
  name,
  usage: 'SERVER [--json]',
  example: `${name} memory`,
  options: { ...jsonOption, ...hostOptions },
  positionals: [1, 1],
  run: (args) =>
    withControlClient(args, 'refuse', async (client) => {
      const row = (await client.request(name, { server: args.positionals[0] })) as StatusRow;
      if (args.has('json')) printJson({ server: row });
      else printLines([[`${row.name}: `, stateSpan(row)]]);
      return EXIT.done;
    }),
});

export const start = command('start');
export const stop = command('stop');
export const reload = command('reload');
