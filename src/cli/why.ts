/** `hostler why`: who sees a server or a tool, by which rule, and what a call would meet now. */
import type { Explanation } from '../host/explain.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText } from './print.js';
import { withRunning } from './running.js';
import { whyText } from './why-text.js';

export function why(words: Words): Promise<number> {
  const [about = ''] = words.positionals;
  // At the first slash: a tool may have one in its name, a server not.
  const slash = about.indexOf('/');
  const server = slash < 0 ? about : about.slice(0, slash);
  const tool = slash < 0 ? undefined : about.slice(slash + 1);
  const role = words.text('role');
  return withRunning(words, async (client) => {
    const asked = { server, ...(tool === undefined ? {} : { tool }), ...(role === undefined ? {} : { role }) };
    const explained = (await client.ask('why', asked)) as Explanation;
    if (words.has('json')) printJson(explained);
    else printText(whyText(explained));
    return EXIT.done;
  });
}
