/** `hostler status`: shows every server and its state, once or until Ctrl-C. */
import type { BrokerEngine } from '../host/broker-status.js';
import type { StatusRow } from '../host/status.js';
import { systemClock } from '../kernel/clock.js';
import { formatDuration } from '../kernel/duration.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, hostOptions, jsonOption } from './command.js';
import { type ControlClient, untilInterrupted } from './control/control-client.js';
import type { BrokerFacts, RunningFacts } from './control/control-protocol.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { isRedrawn, LiveBlock } from './output/live-block.js';
import { ago, counted, printJson, printLines } from './output/print.js';
import { approvalLines, serverLines, statusTable, totalsLine } from './output/status-table.js';
import { type Line, screenOf, span } from './output/styled.js';
import { waitingText } from './output/waiting-text.js';

const noteChars = 400;

export const status: Command = {
  name: 'status',
  usage: '[SERVER] [--json] [--watch]',
  example: 'status --watch',
  options: { ...jsonOption, 'watch|w': 'redraw until Ctrl-C', ...hostOptions },
  positionals: [0, 1],
  run: (args) =>
    withControlClient(args, 'show', async (client) => {
      const [server] = args.positionals;
      await (args.has('watch') ? watch : once)(client, server, args.has('json'));
      return EXIT.done;
    }),
};

interface Picture {
  readonly facts: RunningFacts;
  readonly rows: readonly StatusRow[];
}

async function once(client: ControlClient, server: string | undefined, isJson: boolean): Promise<void> {
  const rows: StatusRow[] = [];
  const facts = (await client.request('status', { server }, (row) => rows.push(row as StatusRow))) as RunningFacts;
  if (isJson) return printJson({ ...facts, servers: rows });
  printLines(blockOf({ facts, rows }, server).flat());
}

/** Returns the table of all servers, or the facts of one, and the lines below. */
function blockOf({ facts, rows }: Picture, server: string | undefined): [lines: Line[], foot: Line[]] {
  if (server !== undefined) return [rows.flatMap((row) => serverLines(row, screenOf(process.stdout))), []];
  const where = facts.url === undefined ? 'over stdio' : `at ${facts.url}`;
  const startedMs = systemClock.date().getTime() - Date.parse(facts.startedAt);
  const table = facts.isStopping ? ['Hostler is stopping'] : statusTable(rows, screenOf(process.stdout));
  const notes = (facts.notes ?? []).map((note) => span('busy', `! ${neutraliseLine(note, noteChars)}`));
  const title: Line = [
    span('strong', 'hostler'),
    ` ${facts.version} (pid ${facts.pid}) ${where}`,
    span('dim', `, started ${ago(startedMs)}`),
  ];
  const foot: Line[] = [
    ...(rows.length === 0 ? [] : ['', totalsLine(rows)]),
    ...approvalLines(rows),
    ...(facts.broker && !facts.isStopping ? ['', brokerLine(facts.broker)] : []),
    ...(notes.length === 0 ? [] : ['', ...notes]),
    ...(facts.waiting === undefined ? [] : ['', waitingText(facts.waiting)]),
  ];
  return [[title, '', ...table], foot];
}

/** Text that says where workers reach the broker, by engine. */
const places: Readonly<Record<BrokerEngine, (facts: BrokerFacts) => string>> = {
  embedded: ({ url }) => `at ${url}`,
  nats: ({ isConnected }) => `over NATS${isConnected ? '' : ' (not connected)'}`,
};

export function brokerLine(facts: BrokerFacts): string {
  const { engine, connectedWorkers, waiting, running, oldestMs, uncertain } = facts;
  // A running Hostler of a later version may have another engine.
  const where = (places[engine] ?? places.embedded)(facts);
  const workers = `${counted(connectedWorkers, 'worker')} connected`;
  const calls = `${counted(running, 'call')} running, ${waiting} waiting`;
  const oldest = oldestMs === undefined ? '' : `, the oldest for ${formatDuration(oldestMs)}`;
  return `broker ${where}: ${workers}; ${calls}${oldest}; ${uncertain} uncertain since the start`;
}

/** Redraws the table in place on a terminal. Any other output gets one table after the other. */
async function watch(client: ControlClient, server: string | undefined, isJson: boolean): Promise<void> {
  let rows: StatusRow[] = [];
  const block = isRedrawn(process.stdout) && !isJson ? new LiveBlock(process.stdout) : undefined;
  const draw = (facts: RunningFacts) => {
    if (isJson) printJson({ ...facts, servers: rows });
    else {
      const picture = blockOf({ facts, rows }, server);
      if (block) block.draw(...picture);
      else printLines([...picture.flat(), '']);
    }
    rows = [];
  };
  const onEvent = (event: unknown) => {
    const { facts } = event as { facts?: RunningFacts };
    if (facts) draw(facts);
    else rows.push(event as StatusRow);
  };
  await untilInterrupted(client, client.request('status', { follow: true, server }, onEvent));
}
