/**
 * What the running Hostler does for the other commands. They act as whoever started Hostler, who is under no role.
 * Not here: the socket (control-server.ts), how answers look (the commands).
 *
 * Invariant: no single message grows with the number of servers or the size of an answer: long ones are told in pieces.
 */
import { z } from 'zod';
import type { Explanation } from '../../host/explain.js';
import type { Host } from '../../host/host.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import type { Principal } from '../../policy/call.js';
import { embedder } from '../../policy/call.js';
import { loggedKinds } from '../event-line.js';
import type { ServerLogs } from '../server-logs.js';
import type { Operation, OperationContext, Operations } from './control-server.js';
import type { RunningFacts } from './running-facts.js';

export interface OperationsParts {
  readonly host: Host;
  readonly logs: ServerLogs;
  readonly clock: Clock;
  readonly facts: () => RunningFacts;
}

/** Characters of an answer in one message; each may become six bytes. */
const pieceChars = 128 * 1024;
/** A tool's own text beyond this is left out of the list. */
const toolBytesMax = 512 * 1024;
/** Whoever watches sees at most this many pictures a second, and one even when nothing happens. */
const redrawMs = 250;
const idleRedrawMs = 2_000;

const name = z.string().min(1).max(256);
const deadlineMs = z.number().positive().max(86_400_000).optional();
const schemas = {
  status: z.object({ follow: z.boolean().optional() }),
  tools: z.object({ server: name.optional() }),
  call: z.object({ server: name, tool: z.string().min(1).max(4_096), args: z.string(), deadlineMs }),
  server: z.object({ server: name }),
  why: z.object({ server: name, tool: z.string().max(4_096).optional(), role: z.string().max(256).optional() }),
  logs: z.object({ server: name, follow: z.boolean().optional() }),
};

export function createOperations(parts: OperationsParts): Operations {
  const { host, logs, facts } = parts;
  const onServer = (run: (server: string) => Promise<void>) =>
    operation(schemas.server, async ({ server }) => {
      await run(server);
      return rowOf(host, server);
    });
  return {
    version: async () => facts(),
    status: operation(schemas.status, async ({ follow }, context) => {
      if (follow) await watch(parts, context);
      else tellRows(host, context);
      return facts();
    }),
    tools: operation(schemas.tools, async ({ server }, { tell }) => {
      if (server !== undefined) rowOf(host, server);
      const found = await host.discover({ wake: false });
      const wanted = found.filter((each) => server === undefined || each.server === server);
      for (const each of wanted) tell(toolFrame(each));
      return { tools: wanted.filter((each) => 'tool' in each).length };
    }),
    call: operation(schemas.call, async ({ server, tool, args, deadlineMs: limit }, { tell, signal }) => {
      // Without a session of its own a client is known by its key: here the operator's.
      const options = { signal, instance: embedder.id, ...(limit === undefined ? {} : { deadlineMs: limit }) };
      const { bytes, isError } = await host.call(server, tool, args, options);
      const text = bytes.toString('utf8');
      for (let at = 0; at < text.length; at += pieceChars) tell(text.slice(at, at + pieceChars));
      return { isError };
    }),
    start: onServer((server) => host.start(server)),
    stop: onServer((server) => host.stop(server)),
    reload: onServer((server) => host.reload(server)),
    why: operation(schemas.why, async ({ server, tool, role }): Promise<Explanation> => {
      // Without a role it is whoever holds the local key, who is also who embeds the host.
      const principal: Principal | undefined =
        role === undefined ? undefined : { id: `role:${role}`, role, scopes: [] };
      return host.explain(server, tool, principal);
    }),
    logs: operation(schemas.logs, async ({ server, follow }, { tell, signal }) => {
      rowOf(host, server);
      for (const line of logs.tail(server)) tell(line);
      if (follow) await logs.follow(server, tell, signal);
    }),
  };
}

const operation =
  <T>(schema: z.ZodType<T>, run: (request: T, context: OperationContext) => Promise<unknown>): Operation =>
  (request, context) => {
    const parsed = schema.safeParse(request);
    if (parsed.success) return run(parsed.data, context);
    const [issue] = parsed.error.issues;
    throw new HostError('invalid_request', `${issue?.path.join('.')}: ${issue?.message}`);
  };

function rowOf(host: Host, server: string) {
  const row = host.status().find((each) => each.name === server);
  if (row) return row;
  const names = host.status().map((each) => each.name);
  throw new HostError('server_not_found', `there is no server '${server.slice(0, 100)}'`, {
    server,
    hint: names.length === 0 ? 'the configuration has no servers' : `there are: ${names.slice(0, 20).join(', ')}`,
  });
}

function tellRows(host: Host, { tell }: OperationContext): void {
  for (const row of host.status()) tell(row);
}

/** Each picture is all rows and then `null`. */
async function watch({ host, clock }: OperationsParts, context: OperationContext): Promise<void> {
  const { tell, signal } = context;
  let cancel = () => {};
  let drawnAtMs = 0;
  let nextAtMs = Number.POSITIVE_INFINITY;
  const plan = (atMs: number) => {
    if (atMs >= nextAtMs) return;
    cancel();
    nextAtMs = atMs;
    cancel = clock.at(atMs, draw);
  };
  const draw = () => {
    drawnAtMs = clock.nowMs();
    nextAtMs = Number.POSITIVE_INFINITY;
    tellRows(host, context);
    tell(null);
    plan(drawnAtMs + idleRedrawMs);
  };
  draw();
  const offs = loggedKinds.map((kind) => host.on(kind, () => plan(drawnAtMs + redrawMs)));
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
  cancel();
  for (const off of offs) off();
}

type Found = Awaited<ReturnType<Host['discover']>>[number];

function toolFrame(found: Found): Readonly<Record<string, unknown>> {
  if ('error' in found) return { server: found.server, error: isHostError(found.error) ? found.error.toJSON() : {} };
  const { server, tool, schema, pin, isUnapproved, state } = found;
  const frame = { server, tool, pin, isUnapproved, ...(state === undefined ? {} : { state }) };
  return JSON.stringify(schema)?.length > toolBytesMax ? frame : { ...frame, schema };
}
