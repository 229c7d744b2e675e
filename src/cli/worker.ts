/**
 * `hostler worker`: serves the tools of a Hostler on another machine to one client over stdin and stdout.
 * Not here: serving (broker/worker/serve-worker.ts), the connection to the broker (broker/worker).
 * Invariants: stdout gets only MCP messages. The key is never printed. It is never an argument, because other users can read
 * arguments. While the broker is unreachable the worker serves its last tools. The worker ends with its client, or if its key
 * is refused before it has any tools.
 */
import { readKeyFile } from '../broker/key-file.js';
import { engineOf } from '../broker/worker/engine-of.js';
import { RemoteTools } from '../broker/worker/remote-tools.js';
import { serveWorker } from '../broker/worker/serve-worker.js';
import { parseDuration } from '../config/values.js';
import { systemClock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { createRedactor } from '../kernel/redact.js';
import type { Command, ParsedArgs } from './command.js';
import { EXIT } from './exit-codes.js';
import { logLine } from './output/stderr-log.js';
import { limitHeap } from './process/heap-flags.js';
import { onStopSignal } from './process/stop-signals.js';
import { version } from './version.js';

/** Time that a call waits for a connection. */
const linkWaitMs = 15_000;
const drainMs = 10_000;
const callDefault = '60s';

type WriteLog = (level: 'info' | 'warn', text: string) => void;

export const worker: Command = {
  name: 'worker',
  usage: '--broker URL [--key-file FILE] [--timeout 60s] [--insecure] [--json]',
  options: {
    'broker=': 'address of the broker: wss://host/..., or nats://host:4222/mailbox',
    'key-file=': 'file with the key of this worker; without it $HOSTLER_KEY_FILE, else the key in $HOSTLER_KEY',
    'timeout=': 'time limit of a call whose client does not ask for progress, like 60s',
    insecure: 'connect to another machine without TLS: key, calls and results can be read on the network',
    json: 'print one line of JSON to stderr when the tools are known',
  },
  positionals: [0, 0],
  async run(args) {
    const { broker, key, callMs, insecure, isJson } = workerOptions(args, process.env);
    limitHeap();
    const redactor = createRedactor();
    redactor.know(key);
    const writeLog: WriteLog = (level, text) => logLine(level, text, redactor.redact);
    const open = await engineOf({ broker, key, insecure, clock: systemClock });
    const tools = new RemoteTools({ open, clock: systemClock, linkWaitMs });
    logStates(tools, writeLog);
    const served = serveWorker({
      ...{ version, tools, callMs, clock: systemClock, input: process.stdin, output: process.stdout },
      onProblem: (error) => writeLog('warn', error instanceof Error ? error.message : String(error)),
    });
    onStopSignal(() => void served.ingress.close(drainMs));
    const refused = new Promise<HostError>((resolve) => {
      tools.on('state', ({ state, error }) => {
        if (state === 'refused' && error && tools.toolCount === 0) resolve(error);
      });
    });
    if (isJson) {
      const off = tools.on('manifest', () => {
        off();
        const { me, tools: count } = tools.status();
        const ready = {
          ready: true,
          mailbox: me?.mailbox ?? null,
          role: me?.role ?? null,
          tools: count,
          pid: process.pid,
        };
        process.stderr.write(`${JSON.stringify(ready)}\n`);
      });
    }
    const error = await Promise.race([served.closed, refused]);
    if (error) await served.ingress.close();
    await served.closed;
    if (error) throw error;
    return EXIT.done;
  },
};

interface WorkerOptions {
  readonly broker: string;
  readonly key: string;
  readonly callMs: number;
  readonly insecure: boolean;
  readonly isJson: boolean;
}

export function workerOptions(args: ParsedArgs, env: NodeJS.ProcessEnv): WorkerOptions {
  const broker = args.text('broker');
  if (broker === undefined) throw usage('--broker', 'is missing', 'give the address that the broker prints');
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

/** Logs each change of state or of its error, without repeats. */
function logStates(tools: RemoteTools, writeLog: WriteLog): void {
  let last = '';
  tools.on('state', ({ state, error }) => {
    const { me, tools: count } = tools.status();
    const why = error ? `: ${error.message}` : '';
    const line =
      state === 'ready' ? `worker '${me?.mailbox}' is connected, ${count} tools${why}` : `worker ${state}${why}`;
    if (line === last) return;
    last = line;
    writeLog((state === 'ready' && !error) || state === 'closed' ? 'info' : 'warn', line);
    const isDenied = state === 'refused' || (state === 'ready' && error?.code === 'denied');
    if (isHostError(error) && error.hint !== undefined && isDenied) writeLog('warn', error.hint);
  });
}
