/**
 * The operations of the control socket. They run as the embedder: the user who started Hostler, without a role.
 * Not here: the socket (control-server.ts), output (the commands).
 * Invariant: no frame grows with the number of servers or the size of an answer; long answers are sent in pieces.
 */
import * as z from 'zod/mini';
import { readTarget } from '../../config/server-name.js';
import type { Explanation } from '../../host/explain.js';
import type { Host } from '../../host/host.js';
import type { StatusRow } from '../../host/status.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { Principal } from '../../policy/operation.js';
import { embedder } from '../../policy/operation.js';
import type { PinReview } from '../../policy/pin-review.js';
import { loggedKinds } from '../output/event-line.js';
import { counted } from '../output/print.js';
import type { DisabledItems } from '../up/disabled-items.js';
import type { ServerLogs } from '../up/server-logs.js';
import type { RunningFacts } from './control-protocol.js';
import type { Operation, OperationContext, Operations } from './control-server.js';
import { findAbout, findTool, namedServers, ownName, serverNamed } from './find-tool.js';

export interface OperationsParts {
  readonly host: Host;
  readonly logs: ServerLogs;
  readonly clock: Clock;
  readonly facts: () => RunningFacts;
  readonly disabled: DisabledItems;
  /** Ends the whole host after the answer to this request. */
  readonly end: (reason: 'down' | 'restart') => void;
  /** Returns the error to show for an error of a server. Default: the same error. */
  readonly shownError?: (error: HostError) => HostError;
}

/** Characters of an answer in one frame. JSON may escape each character to six bytes; a frame has at most 1 MiB. */
const pieceChars = 128 * 1024;
/** A longer schema is left out of its frame. */
const toolBytesMax = 512 * 1024;
/** Bounds of a review that is too long for one frame. */
const fieldsMax = 200;
const cutChars = 1_000;
/** Shortest and longest time between two tables of `status --watch`. */
const redrawMs = 250;
const idleRedrawMs = 2_000;

const text = (min: number, max: number) => z.string().check(z.minLength(min), z.maxLength(max));
/** A name may be long, because clients write any text. */
const name = () => text(1, 1_024);
const deadlineMs = () => z.optional(z.number().check(z.positive(), z.maximum(86_400_000)));
const follow = () => z.optional(z.boolean());
/** Each schema is made when its operation is first used, because a start needs none of them. */
const schemas = {
  status: () => z.object({ follow: follow(), server: z.optional(name()) }),
  tools: () => z.object({ server: z.optional(name()) }),
  tool: () => z.object({ server: text(1, 4_096), tool: z.optional(text(1, 4_096)), deadlineMs: deadlineMs() }),
  call: () => z.object({ server: name(), tool: text(1, 4_096), args: z.string(), deadlineMs: deadlineMs() }),
  server: () => z.object({ server: name() }),
  why: () => z.object({ target: text(1, 8_192), role: z.optional(text(0, 256)) }),
  pins: () => z.object({ about: z.optional(text(1, 8_192)) }),
  approve: () => z.object({ server: name(), tool: text(1, 4_096), hash: text(64, 71) }),
  about: () => z.object({ about: text(1, 4_352) }),
  logs: () =>
    z.object({
      server: z.optional(name()),
      follow: follow(),
      since: z.optional(text(1, 40)),
      tail: z.optional(z.number()),
    }),
};

export function createOperations(parts: OperationsParts): Operations {
  const { host, logs, facts, disabled, end, shownError = (error) => error } = parts;
  const switched = (isDisabled: boolean) =>
    operation(schemas.about, async ({ about }) => {
      const { server, tool } = await findAbout(host, about);
      await disabled.set(server, tool, isDisabled);
      const { state, problem } = rowOf(host, server);
      // The server may still be out of service by its entry in the configuration.
      const off =
        !isDisabled && state === 'disabled' ? { config: facts().config, problem: problem ?? null } : undefined;
      const isServerDisabled = !isDisabled && disabled.has(server);
      return { server, tool, off, isServerDisabled };
    });
  const ending = (reason: 'down' | 'restart') => async () => {
    setImmediate(() => end(reason));
    return facts();
  };
  const onServer = (run: (server: string) => Promise<void>) =>
    operation(schemas.server, async ({ server: given }) => {
      const server = serverNamed(host, given);
      await run(server);
      return rowOf(host, server);
    });
  return {
    down: ending('down'),
    restart: ending('restart'),
    status: operation(schemas.status, async ({ follow, server: given }, context) => {
      const server = given === undefined ? undefined : serverNamed(host, given);
      if (follow) await watch(parts, server, context);
      else emitRows(parts, server, context);
      return facts();
    }),
    tool: operation(schemas.tool, (words) => findTool(host, words)),
    tools: operation(schemas.tools, async ({ server: given }, { emit }) => {
      const server = given === undefined ? undefined : serverNamed(host, given);
      const found = await host.discover({ wake: false });
      const wanted = found.filter((each) => server === undefined || each.server === server);
      for (const each of wanted) emit('error' in each ? errorFrame(each, shownError) : toolFrame(each));
      return { tools: wanted.filter((each) => 'tool' in each).length };
    }),
    call: operation(schemas.call, async ({ server, tool, args, deadlineMs: limit }, { emit, signal }) => {
      // A client without a session uses the instance of its principal, here the embedder.
      const options = { signal, instance: embedder.id, ...(limit === undefined ? {} : { deadlineMs: limit }) };
      const { bytes, isError } = await host.call(serverNamed(host, server), tool, args, options);
      const text = bytes.toString('utf8');
      for (let at = 0; at < text.length; at += pieceChars) emit(text.slice(at, at + pieceChars));
      return { isError };
    }),
    start: onServer(async (server) => {
      if (disabled.has(server)) throw isDisabledError(server);
      await host.start(server);
    }),
    stop: onServer((server) => host.stop(server)),
    reload: onServer((server) => host.reload(server)),
    why: operation(schemas.why, async ({ target, role }): Promise<Explanation> => {
      const { server: given, tool } = readTarget(namedServers(host), target);
      const server = serverNamed(host, given);
      // Undefined means the operator, the owner of the local key.
      const principal: Principal | undefined =
        role === undefined ? undefined : { id: `role:${role}`, role, scopes: [] };
      return host.explain(server, tool === undefined ? tool : ownName(host, server, tool), principal);
    }),
    pins: operation(schemas.pins, async ({ about }, { emit }) => {
      const { server: given, tool } = about === undefined ? {} : readTarget(namedServers(host), about);
      const server = given === undefined ? undefined : serverNamed(host, given);
      const waiting = host.approvals.waiting(server).filter((review) => tool === undefined || review.tool === tool);
      // A mistyped tool must not look like one that is approved.
      if (server !== undefined && tool !== undefined && waiting.length === 0) await findTool(host, { server, tool });
      for (const review of waiting) emit(reviewFrame(review));
      return { server, waiting: waiting.length };
    }),
    approve: operation(schemas.approve, async ({ server: given, tool, hash }) => {
      const server = serverNamed(host, given);
      host.approve(server, tool, hash);
      return { server, tool, hash };
    }),
    unapprove: async () => host.approvals.undo(),
    enable: switched(false),
    disable: switched(true),
    logs: operation(schemas.logs, async ({ server: given, follow, since, tail }, { emit, signal }) => {
      const server = given === undefined ? undefined : serverNamed(host, given);
      for (const line of logs.tail(server === undefined ? host.names() : [server], since, tail)) emit(line);
      if (follow) await logs.follow(server, emit, signal);
    }),
  };
}

function operation<T>(
  schemaOf: () => z.ZodMiniType<T>,
  run: (request: T, context: OperationContext) => Promise<unknown>,
): Operation {
  let schema: z.ZodMiniType<T> | undefined;
  return (request, context) => {
    schema ??= schemaOf();
    const parsed = schema.safeParse(request);
    if (parsed.success) return run(parsed.data, context);
    const [issue] = parsed.error.issues;
    throw new HostError('invalid_request', `${issue?.path.join('.')}: ${issue?.message}`);
  };
}

const isDisabledError = (server: string): HostError =>
  new HostError('server_disabled', `server '${server}' was disabled by hostler disable`, {
    ...{ server, execution: 'not_executed' },
    hint: `hostler enable ${server} puts it back into service`,
  });

function rowOf(host: Host, given: string): StatusRow {
  const server = serverNamed(host, given);
  const row = host.status().find((each) => each.name === server);
  if (!row) throw new HostError('server_stopped', 'Hostler is stopping', { server });
  return row;
}

function emitRows({ host, disabled }: OperationsParts, server: string | undefined, { emit }: OperationContext): void {
  for (const row of host.status()) {
    if (server !== undefined && row.name !== server) continue;
    const tools = disabled.toolsOf(row.name).length;
    const notes = [
      ...row.notes,
      ...(disabled.has(row.name) ? [`disabled: hostler enable ${row.name} puts it back`] : []),
      ...(tools > 0 ? [`${counted(tools, 'tool')} disabled by hostler disable`] : []),
    ];
    emit({ ...row, notes });
  }
}

/** Emits the rows of all servers and then the facts of this Hostler: at once, after changes, and at least every two seconds. */
async function watch(parts: OperationsParts, server: string | undefined, context: OperationContext): Promise<void> {
  const { host, clock, facts } = parts;
  const { emit, signal } = context;
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
    emitRows(parts, server, context);
    emit({ facts: facts() });
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

/** Cuts the texts of a review that is too long for one frame, so that at least the changed fields are named. */
function reviewFrame(review: PinReview): PinReview {
  if (JSON.stringify(review).length <= toolBytesMax) return review;
  const changes = review.changes.slice(0, fieldsMax).map((change) => ({
    ...change,
    before: change.before && `${change.before.slice(0, cutChars)}…`,
    after: change.after && `${change.after.slice(0, cutChars)}…`,
  }));
  return { ...review, changes };
}

type Found = Awaited<ReturnType<Host['discover']>>[number];
type Failed = Extract<Found, { error: unknown }>;

const errorFrame = ({ server, error }: Failed, shownError: (error: HostError) => HostError) => ({
  server,
  error: shownError(error).toJSON(),
});

function toolFrame(found: Exclude<Found, Failed>): Readonly<Record<string, unknown>> {
  const { server, tool, schema, pin, isUnapproved, state, raw } = found;
  const frame = { server, tool, pin, isUnapproved, bytes: raw.length, ...(state === undefined ? {} : { state }) };
  return JSON.stringify(schema)?.length > toolBytesMax ? frame : { ...frame, schema };
}
