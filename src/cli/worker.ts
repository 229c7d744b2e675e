/**
 * `hostler worker`: the tools of a Hostler on another machine, served to one client over stdin and stdout in both protocol eras.
 * Not here: options (worker-options.ts), serving (gateway/), the way to the other machine (broker/worker).
 *
 * Invariants: stdout holds messages of the protocol and nothing else; the key is shown nowhere; it serves while the broker is
 * away, with what it last knew, and ends when its client does. A key that does not count before anything was served ends it.
 */
import './plain-zod.js';

import type { Readable, Writable } from 'node:stream';
import { engineOf } from '../broker/worker/engine-of.js';
import { RemoteTools } from '../broker/worker/remote-tools.js';
import { createBridge } from '../gateway/bridge/bridge.js';
import { createRouter } from '../gateway/routing/router.js';
import { createStdioIngress, type StdioIngress } from '../gateway/stdio/stdio-ingress.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import { systemRandom } from '../kernel/random.js';
import { createRedactor } from '../kernel/redact.js';
import { embedder } from '../policy/call.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { boundHeap } from './heap-bounds.js';
import { RemoteUpstreams } from './remote-upstreams.js';
import { logLine } from './stderr-log.js';
import { onStopSignal } from './stop-signals.js';
import { type FirstTools, toolsOnly } from './tools-only-router.js';
import { version } from './version.js';
import { workerOptions } from './worker-options.js';

/** The first list, and the greeting before it, wait so long for tools that nobody knows yet. */
const firstMs = { tools: 5_000, greeting: 1_000 } as const;
/** A call that could not be sent waits so long for a connection. */
const linkWaitMs = 15_000;
const drainMs = 10_000;

type Say = (level: 'info' | 'warn', text: string) => void;

export async function worker(words: Words): Promise<number> {
  const { broker, key, callMs, insecure, isJson } = workerOptions(words, process.env);
  boundHeap();
  const redactor = createRedactor();
  redactor.know(key);
  const say: Say = (level, text) => logLine(level, text, redactor.redact);
  const open = await engineOf({ broker, key, insecure, clock: systemClock });
  const tools = new RemoteTools({ open, clock: systemClock, linkWaitMs });
  tellStates(tools, say);
  const served = serveWorker({
    ...{ tools, callMs, clock: systemClock, input: process.stdin, output: process.stdout },
    onProblem: (error) => say('warn', error instanceof Error ? error.message : String(error)),
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
}

export interface ServedWorker {
  readonly ingress: StdioIngress;
  /** Resolves when the client is gone and everything is given back. */
  readonly closed: Promise<undefined>;
}

export interface WorkerServing {
  readonly tools: RemoteTools;
  readonly callMs: number;
  readonly clock: Clock;
  readonly input: Readable;
  readonly output: Writable;
  readonly onProblem: (error: unknown) => void;
}

/** Everything between a pipe and remote tools, which end with the pipe. */
export function serveWorker({ tools, callMs, clock, input, output, onProblem }: WorkerServing): ServedWorker {
  const upstreams = new RemoteUpstreams(tools, { callMs, onProblem });
  const router = createRouter({
    ...{ upstreams, clock, onProblem },
    bridge: createBridge({ clock, random: systemRandom }),
    serverInfo: { name: 'hostler', version },
  });
  const first = firstTools(tools);
  const ingress = createStdioIngress({
    ...{ clock, input, output, onProblem },
    router: toolsOnly(router, first),
    principal: embedder,
    endpoint: { kind: 'all' },
  });
  const end = async (): Promise<undefined> => {
    await ingress.closed;
    router.close();
    upstreams.close();
    await tools.close();
  };
  return { ingress, closed: end() };
}

function firstTools(tools: RemoteTools): FirstTools {
  const waits = new Map<string, Promise<void>>();
  for (const topic of ['greeting', 'tools'] as const) {
    const over = () => void waits.delete(topic);
    waits.set(topic, tools.ready(firstMs[topic]).then(over, over));
  }
  return (topic) => waits.get(topic);
}

/** One line for each change, and one for each new reason why there is no connection. */
function tellStates(tools: RemoteTools, say: Say): void {
  let last = '';
  tools.on('state', ({ state, error }) => {
    const { me, tools: count } = tools.status();
    const why = error ? `: ${error.message}` : '';
    const said =
      state === 'ready' ? `worker '${me?.mailbox}' is connected, ${count} tools${why}` : `worker ${state}${why}`;
    if (said === last) return;
    last = said;
    say((state === 'ready' && !error) || state === 'closed' ? 'info' : 'warn', said);
    const isDenied = state === 'refused' || (state === 'ready' && error?.code === 'denied');
    if (isHostError(error) && error.hint !== undefined && isDenied) say('warn', error.hint);
  });
}
