/** `hostler status`: shows every server and its state, once or until Ctrl-C. */
import type { StatusRow } from '../host/status.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, dataDirOption, jsonOption } from './command.js';
import { type ControlClient, untilInterrupted } from './control/control-client.js';
import type { BrokerFacts, RunningFacts } from './control/control-protocol.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { formatDuration, printJson, printLines } from './output/print.js';
import { statusTable } from './output/status-table.js';
import { screenOf } from './output/styled.js';
import { waitingText } from './output/trust-text.js';

const noteChars = 400;

export const status: Command = {
  name: 'status',
  usage: '[--json] [--watch]',
  example: 'status --watch',
  options: { ...jsonOption, 'watch|w': 'redraw until Ctrl-C', ...dataDirOption },
  positionals: [0, 0],
  run: (args) =>
    withControlClient(args, async (client) => {
      await (args.has('watch') ? watch : once)(client, args.has('json'));
      return EXIT.done;
    }),
};

async function once(client: ControlClient, isJson: boolean): Promise<void> {
  const rows: StatusRow[] = [];
  const facts = (await client.request('status', {}, (row) => rows.push(row as StatusRow))) as RunningFacts;
  if (isJson) return printJson({ ...facts, servers: rows });
  const where = facts.url === undefined ? 'over stdio' : `at ${facts.url}`;
  const table = facts.isStopping ? ['Hostler is stopping'] : statusTable(rows, screenOf(process.stdout));
  const notes = (facts.notes ?? []).map((note) => `! ${neutraliseLine(note, noteChars)}`);
  printLines([
    `hostler ${facts.version} (pid ${facts.pid}) ${where}`,
    '',
    ...table,
    ...(facts.broker && !facts.isStopping ? ['', brokerLine(facts.broker)] : []),
    ...(notes.length === 0 ? [] : ['', ...notes]),
    ...(facts.waiting === undefined ? [] : ['', waitingText(facts.waiting)]),
  ]);
}

export function brokerLine(facts: BrokerFacts): string {
  const { engine, isConnected, connectedWorkers, waiting, running, oldestMs, uncertain, url } = facts;
  const where = engine === 'nats' ? `over NATS${isConnected ? '' : ' (not connected)'}` : `at ${url}`;
  const workers = `${connectedWorkers} ${connectedWorkers === 1 ? 'worker' : 'workers'} connected`;
  const calls = `${running} calls running, ${waiting} waiting`;
  const oldest = oldestMs === undefined ? '' : `, the oldest for ${formatDuration(oldestMs)}`;
  return `broker ${where}: ${workers}; ${calls}${oldest}; ${uncertain} uncertain since the start`;
}

/** Redraws a terminal in place; a pipe gets one table after the other. */
async function watch(client: ControlClient, isJson: boolean): Promise<void> {
  let rows: StatusRow[] = [];
  const draw = () => {
    if (isJson) printJson({ servers: rows });
    else {
      if (process.stdout.isTTY) process.stdout.write('\u001b[H\u001b[2J');
      printLines([...statusTable(rows, screenOf(process.stdout)), '']);
    }
    rows = [];
  };
  const onRow = (row: unknown) => (row === null ? draw() : rows.push(row as StatusRow));
  await untilInterrupted(client, client.request('status', { follow: true }, onRow));
}
