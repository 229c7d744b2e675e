/** `hostler logs`: what happened to a server and what it wrote to stderr, once or until Ctrl-C. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { printText } from './print.js';
import { untilInterrupted, withRunning } from './running.js';
import type { LogLine } from './server-logs.js';

const lineChars = 4_096;

export function logs(words: Words): Promise<number> {
  const [server] = words.positionals;
  const told = (line: unknown) => printText(render(line as LogLine));
  return withRunning(words, async (client) => {
    const work = client.ask('logs', { server, follow: words.has('follow') }, told);
    await untilInterrupted(client, work);
    return EXIT.done;
  });
}

const render = ({ at, from, text }: LogLine): string =>
  `${from === 'stderr' ? 'stderr ' : `${at} hostler`} | ${neutraliseLine(text, lineChars)}`;
