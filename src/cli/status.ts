/** `hostler status`: every server and how it is, once or until Ctrl-C. */
import type { StatusRow } from '../host/status.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Words } from './command.js';
import type { ControlClient } from './control/control-client.js';
import type { RunningFacts } from './control/running-facts.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText, widthOf } from './print.js';
import { untilInterrupted, withRunning } from './running.js';
import { statusTable } from './status-table.js';
import { waitingText } from './trust/waiting-text.js';

const noteChars = 400;

export function status(words: Words): Promise<number> {
  return withRunning(words, async (client) => {
    if (words.has('watch')) await watch(client, words.has('json'));
    else await once(client, words.has('json'));
    return EXIT.done;
  });
}

async function once(client: ControlClient, isJson: boolean): Promise<void> {
  const rows: StatusRow[] = [];
  const facts = (await client.ask('status', {}, (row) => rows.push(row as StatusRow))) as RunningFacts;
  if (isJson) return printJson({ ...facts, servers: rows });
  const where = facts.url === undefined ? 'over stdio' : `at ${facts.url}`;
  const waits = facts.waiting === undefined ? '' : `\n\n${waitingText(facts.waiting)}`;
  const notes = (facts.notes ?? []).map((note) => `\n! ${neutraliseLine(note, noteChars)}`).join('');
  const table = facts.isStopping ? 'it is stopping' : statusTable(rows, widthOf(process.stdout));
  printText(
    `hostler ${facts.version} (pid ${facts.pid}) ${where}\n\n${table}${notes === '' ? '' : `\n${notes}`}${waits}`,
  );
}

/** A terminal is painted over; a script gets one picture after the other. */
async function watch(client: ControlClient, isJson: boolean): Promise<void> {
  let rows: StatusRow[] = [];
  const draw = () => {
    if (isJson) printJson({ servers: rows });
    else {
      if (process.stdout.isTTY) process.stdout.write('\u001b[H\u001b[2J');
      printText(`${statusTable(rows, widthOf(process.stdout))}\n`);
    }
    rows = [];
  };
  const told = (row: unknown) => (row === null ? draw() : rows.push(row as StatusRow));
  await untilInterrupted(client, client.ask('status', { follow: true }, told));
}
