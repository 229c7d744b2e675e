/** `hostler start|stop|reload`: one server, and how it is afterwards. */
import type { StatusRow } from '../host/status.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { printText } from './print.js';
import { withRunning } from './running.js';
import { stateWord } from './status-table.js';

export const lifecycle =
  (op: 'start' | 'stop' | 'reload') =>
  (words: Words): Promise<number> =>
    withRunning(words, async (client) => {
      const [server] = words.positionals;
      const { name, state } = (await client.ask(op, { server })) as StatusRow;
      printText(`${name}: ${stateWord(state)}`);
      return EXIT.done;
    });
