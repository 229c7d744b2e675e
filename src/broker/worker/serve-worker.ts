/**
 * Serves remote tools to one MCP client over a pipe: the gateway's stdio ingress and router on top of RemoteTools.
 * This file and the two beside it that import gateway/ (remote-upstreams.ts, tools-only-router.ts) are not part of the library's
 * worker entry.
 */
import type { Readable, Writable } from 'node:stream';
import { createBridge } from '../../gateway/eras/eras.js';
import { createRouter } from '../../gateway/routing/router.js';
import { createStdioIngress, type StdioIngress } from '../../gateway/stdio/stdio-ingress.js';
import type { Clock } from '../../kernel/clock.js';
import { systemRandom } from '../../kernel/random.js';
import { embedder } from '../../policy/operation.js';
import type { RemoteTools } from './remote-tools.js';
import { RemoteUpstreams } from './remote-upstreams.js';
import { type FirstTools, toolsOnly } from './tools-only-router.js';

/** How long the first list, and the greeting before it, wait for the first tools. */
const firstMs = { tools: 5_000, greeting: 1_000 } as const;

export interface ServedWorker {
  readonly ingress: StdioIngress;
  /** Resolves when the client is gone and everything is closed. */
  readonly closed: Promise<undefined>;
}

export interface WorkerServing {
  readonly version: string;
  readonly tools: RemoteTools;
  readonly callMs: number;
  readonly clock: Clock;
  readonly input: Readable;
  readonly output: Writable;
  readonly onProblem: (error: unknown) => void;
}

/** The remote tools are closed with the pipe. */
export function serveWorker(serving: WorkerServing): ServedWorker {
  const { tools, callMs, clock, input, output, onProblem, version } = serving;
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
