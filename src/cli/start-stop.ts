/** `hostler start|stop|reload`: changes one server and prints its new state. */
import type { StatusRow } from '../host/status.js';
import { type Command, dataDirOption } from './command.js';
import { withControlClient } from './control/control-client.js';
import { EXIT } from './exit-codes.js';
import { printText } from './output/print.js';
import { stateText } from './output/status-table.js';

const command = (name: 'start' | 'stop' | 'reload'): Command => ({
  name,
  usage: 'SERVER',
  options: dataDirOption,
  positionals: [1, 1],
  run: (args) =>
    withControlClient(args, async (client) => {
      const row = (await client.request(name, { server: args.positionals[0] })) as StatusRow;
      printText(`${row.name}: ${stateText(row.state)}`);
      return EXIT.done;
    }),
});

export const start = command('start');
export const stop = command('stop');
export const reload = command('reload');
