/**
 * `hostler worker`: serves the tools of a Hostler on another machine to one client over stdin and stdout.
 * Not here: serving (broker/worker/serve-worker.ts), the connection to the broker (broker/worker).
 * Invariants: stdout gets only MCP messages. The key is never printed, and never an argument, because other users can read
 * arguments. While the broker is unreachable, the worker serves the tools that it knew last, even from an earlier start. The worker
 * ends with its client.
 */
import { hash } from 'node:crypto';
import path from 'node:path';
import { readKeyFile } from '../broker/key-file.js';
import { openConnection } from '../broker/worker/connect-worker.js';
import { RemoteTools } from '../broker/worker/remote-tools.js';
import { serveWorker } from '../broker/worker/serve-worker.js';
import { cacheFolder } from '../config/folders.js';
import { parseDuration } from '../config/values.js';
import { systemClock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { makeFolders } from '../kernel/make-folders.js';
import { createRedactor } from '../kernel/redact.js';
import type { Command, ParsedArgs } from './command.js';
import { EXIT } from './exit-codes.js';
import { logLine } from './output/stderr-log.js';
import { limitHeap } from './process/heap-flags.js';
import { onStopSignal } from './process/stop-signals.js';
import { version } from './version.js';

/** Time that a call waits for a connection. */
const connectionWaitMs = 15_000;
const drainMs = 10_000;
const callDefault = '60s';

type WriteLog = (level: 'info' | 'warn', text: string) => void;

export const worker: Command = {
  name: 'worker',
  usage: '--broker URL [--key-file FILE] [--timeout 60s] [--insecure] [--json]',
  example: 'worker --broker wss://host:8384/broker --key-file worker.key',
  options: {
    'broker=': 'wss://host:8384/broker, or nats://host:4222/worker',
    'key-file=': 'file with its key; else $HOSTLER_KEY_FILE or $HOSTLER_KEY',
    'timeout=': 'limit of a call without progress, like 60s',
    insecure: 'no TLS: key, calls and results can be read',
    json: 'print one line of JSON to stderr when connected',
  },
  positionals: [0, 0],
  async run(args) {
    const { broker, key, callMs, insecure, isJson } = workerOptions(args, process.env);
    limitHeap();
    const redactor = createRedactor();
    redactor.know(key);
    const writeLog: WriteLog = (level, text) => logLine(level, text, { redact: redactor.mask });
    const onProblem = (error: unknown) => writeLog('warn', error instanceof Error ? error.message : String(error));
    const open = await openConnection({ broker, key, insecure, clock: systemClock });
    const manifestFile = manifestFileOf(broker, key, process.env, onProblem);
    const tools = new RemoteTools({ open, clock: systemClock, connectionWaitMs, manifestFile });
    tools.on('problem', ({ error }) => onProblem(error));
    logStates(tools, writeLog);
    const served = serveWorker({
      ...{ version, tools, callMs, clock: systemClock, onProblem, input: process.stdin, output: process.stdout },
    });
    onStopSignal(() => void served.ingress.close(drainMs));
    if (isJson) printReady(tools);
    await served.closed;
    return EXIT.done;
  },
};

/** One file for each broker and key: another worker must not see these tools. */
function manifestFileOf(
  broker: string,
  key: string,
  env: NodeJS.ProcessEnv,
  onProblem: (error: unknown) => void,
): string | undefined {
  const folder = cacheFolder(env);
  if (folder === undefined) return undefined;
  try {
    makeFolders(folder);
    return path.join(folder, `worker-${hash('sha256', `${broker} ${key}`).slice(0, 32)}.json`);
  } catch (error) {
    onProblem(error);
    return undefined;
  }
}

function printReady(tools: RemoteTools): void {
  const off = tools.on('state', ({ state }) => {
    if (state !== 'ready') return;
    off();
    const { worker: name = null, role = null, tools: count } = tools.status();
    process.stderr.write(`${JSON.stringify({ ready: true, worker: name, role, tools: count, pid: process.pid })}\n`);
  });
}

interface WorkerOptions {
  readonly broker: string;
  readonly key: string;
  readonly callMs: number;
  readonly insecure: boolean;
  readonly isJson: boolean;
}

export function workerOptions(args: ParsedArgs, env: NodeJS.ProcessEnv): WorkerOptions {
  const broker = args.text('broker');
  if (broker === undefined)
    throw usage('--broker', 'is missing', 'write the address that hostler up prints for workers');
  return {
    broker,
    key: keyOf(args.text('key-file') ?? (env.HOSTLER_KEY_FILE || undefined), env.HOSTLER_KEY?.trim()),
    callMs: parseDuration(args.text('timeout') ?? callDefault, '--timeout'),
    insecure: args.has('insecure'),
    isJson: args.has('json'),
  };
}

function keyOf(file: string | undefined, key: string | undefined): string {
  if (file !== undefined) return readKeyFile(file, '--key-file');
  if (key) return key;
  throw usage('--key-file', 'is missing', 'name the file that holds the key of this worker, or set HOSTLER_KEY_FILE');
}

const usage = (field: string, what: string, hint: string): HostError =>
  new HostError('invalid_spec', `${field} ${what}`, { field, reason: 'usage', hint });

/** Logs each change of the state or of its error. Equal lines in a row are logged once. */
function logStates(tools: RemoteTools, writeLog: WriteLog): void {
  let last = '';
  tools.on('state', ({ state, error }) => {
    const { worker: name, tools: count, connections } = tools.status();
    const why = error ? `: ${error.message}` : '';
    const again = connections > 1 ? ' again' : '';
    const line =
      state === 'ready' ? `worker '${name}' is connected${again}, ${count} tools${why}` : `worker ${state}${why}`;
    if (line === last) return;
    last = line;
    writeLog((state === 'ready' && !error) || state === 'closed' ? 'info' : 'warn', line);
    if (isHostError(error) && error.hint !== undefined) writeLog('warn', error.hint);
  });
}
