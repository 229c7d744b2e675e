/** `hostler logs`: prints the events of a server and its stderr, once or until Ctrl-C. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, dataDirOption } from './command.js';
import { untilInterrupted } from './control/control-client.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printText } from './output/print.js';
import type { LogLine } from './up/server-logs.js';

const lineChars = 4_096;

export const logs: Command = {
  name: 'logs',
  usage: 'SERVER [--follow]',
  example: 'logs memory --follow',
  options: { 'follow|f': 'keep printing until Ctrl-C', ...dataDirOption },
  positionals: [1, 1],
  run(args) {
    const request = { server: args.positionals[0], follow: args.has('follow') };
    const onLine = (line: unknown) => printText(render(line as LogLine));
    return withControlClient(args, async (client) => {
      await untilInterrupted(client, client.request('logs', request, onLine));
      return EXIT.done;
    });
  },
};

const render = ({ at, from, text }: LogLine): string =>
  `${from === 'stderr' ? 'stderr ' : `${at} hostler`} | ${neutraliseLine(text, lineChars)}`;
