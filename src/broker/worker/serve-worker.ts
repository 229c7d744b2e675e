/**
 * Serves remote tools to one MCP client over stdio: the gateway's ingress and router on top of RemoteTools.
 * This file, remote-upstreams.ts and tools-only-router.ts import gateway/. They are not part of `hostler/worker`.
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
import { toolsOnly } from './tools-only-router.js';

export interface ServedWorker {
  readonly ingress: StdioIngress;
  /** Resolves when the client has disconnected and everything is closed. */
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

/** Closes the remote tools when the client disconnects. */
export function serveWorker(serving: WorkerServing): ServedWorker {
  const { tools, callMs, clock, input, output, onProblem, version } = serving;
  const upstreams = new RemoteUpstreams(tools, { callMs, onProblem });
  const router = createRouter({
    ...{ upstreams, clock, onProblem },
    bridge: createBridge({ clock, random: systemRandom }),
    serverInfo: { name: 'hostler', version },
  });
  const ingress = createStdioIngress({
    ...{ clock, input, output, onProblem },
    router: toolsOnly(router, tools),
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
