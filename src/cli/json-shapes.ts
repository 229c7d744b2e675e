/**
 * The shape of each `--json` output. Loaded by `hostler schema` and by tests only.
 * Invariant: within a version, members are added, never removed or retyped; golden files in test/cli/shapes prove it.
 */
import * as z from 'zod/mini';

const text = z.string();
const count = z.number();
const flag = z.boolean();
const maybe = z.optional;
const orNull = z.nullable;
const list = z.array;
/** Strict, so that a member without a description fails a test. The published schema allows further members. */
const shape = <T extends z.core.$ZodLooseShape>(members: T) => z.strictObject({ ...members, v: z.literal(1) });
const part = z.strictObject;

const error = z.looseObject({ code: text, message: text });

const failure = maybe(part({ reason: text, at: maybe(text) }));

/** Strict: there is no member for a token or a secret. */
const loginState = part({
  ...{ state: text, needsLogin: flag, grant: text, issuer: maybe(text), resource: maybe(text) },
  ...{ resourceMetadata: maybe(text), registration: maybe(text), clientId: maybe(text), identity: maybe(text) },
  ...{ scopes: maybe(list(text)), wanted: maybe(list(text)), expiresAt: maybe(text), refreshAt: maybe(text) },
  ...{ lastRefreshAt: maybe(text), lastError: failure, refreshes: z.record(text, count), store: maybe(text) },
  next: maybe(text),
});

const storedLogin = part({
  ...{
    servers: list(text),
    urls: list(text),
    resource: text,
    issuer: text,
    clientId: text,
    account: text,
    state: text,
  },
  ...{ reason: maybe(text), scopes: list(text), wanted: list(text), grant: text, registration: text },
  ...{ identity: maybe(text), expiresAt: maybe(text), loginAt: text, refreshedAt: maybe(text), renewable: flag },
  lastError: failure,
});

const lastError = maybe(part({ code: text, message: text, at: text, agoMs: count }));
const problem = maybe(part({ message: text, hint: maybe(text) }));
const nextProbe = { nextProbeAt: maybe(text), nextProbeInMs: maybe(count) };

const statusRow = part({
  ...{ name: text, label: maybe(text), state: text, since: text, forMs: count, run: count, transport: text },
  ...{ pid: maybe(orNull(count)), uptimeMs: maybe(count), protocolVersion: maybe(text), authIdentity: maybe(text) },
  ...{ lazy: flag, card: maybe(text), active: flag, refCount: count, leases: part({ bindings: count, calls: count }) },
  ...{ calls: count, running: count, queue: count, restartCount: count, consecutiveFailures: count, circuit: text },
  ...{ throttledForMs: maybe(count), ejected: flag, ...nextProbe, lastError },
  ...{ lastSuccessAt: maybe(text), lastSuccessAgoMs: maybe(count), tools: count, toolsError: maybe(text) },
  ...{ problem, changedTools: count, notes: list(text), cacheEntries: count, noisy: flag, noticesLost: maybe(count) },
  unroutedTemplates: maybe(part({ count, templates: list(part({ template: text, reason: text })) })),
  auth: maybe(loginState),
  ...{ unattributed: maybe(count), escaped: count, instances: count, stderrTail: maybe(text) },
});

const broker = part({
  ...{ engine: text, url: maybe(text), isConnected: flag, connectedWorkers: count, waiting: count, running: count },
  ...{ oldestMs: maybe(count), uncertain: count },
});

const running = z.looseObject({
  ...{ version: text, pid: count, url: maybe(text), dataDir: text, config: maybe(text), startedAt: text },
  ...{ isStopping: maybe(flag), waiting: maybe(list(text)), notes: maybe(list(text)), broker: maybe(broker) },
  ...{ relays: maybe(count), environment: maybe(list(text)) },
});

const tool = part({
  ...{ server: text, tool: text, pin: text, isUnapproved: flag, bytes: count, state: maybe(text) },
  schema: maybe(z.looseObject({ name: text })),
});

const logLine = { at: text, server: text, from: z.enum(['hostler', 'stderr']), text };
const serverShape = shape({ server: statusRow });
const ended = shape({ pid: count, config: orNull(text), dataDir: text, runs: flag, newPid: orNull(count) });
const switched = shape({ server: text, tool: maybe(text), isEnabled: flag });

/** The shapes by command line. A command with subcommands or other modes has several shapes. */
export const jsonShapes = {
  /** `hostler --json`, the first screen. `servers` is null if the file cannot be read. */
  hostler: shape({
    version: text,
    running: list(part({ pid: orNull(count), url: orNull(text), config: orNull(text), dataDir: text })),
    config: orNull(part({ file: text, servers: orNull(count) })),
    clients: list(part({ client: text, file: text, servers: orNull(count) })),
    next: list(part({ command: text, meaning: text })),
  }),
  up: shape({ ready: flag, url: orNull(text), key: orNull(text), pid: count, dataDir: text, broker: maybe(text) }),
  status: z.extend(running, { servers: list(statusRow), v: z.literal(1) }),
  tools: shape({ tools: list(tool), failed: list(part({ server: text, error })) }),
  /** The result as the server wrote it, without `v`. */
  call: z.looseObject({ content: maybe(list(z.looseObject({ type: text }))), isError: maybe(flag) }),
  logs: shape({ lines: list(part(logLine)) }),
  'logs --follow': shape(logLine),
  why: shape({
    ...{ server: text, tool: maybe(text), shownAs: maybe(text), visible: flag, rule: text, wouldStart: flag },
    principal: part({ id: text, role: maybe(text) }),
    state: part({ state: text, since: text, forMs: count, ...nextProbe, lastError, toolsError: maybe(text), problem }),
    breaker: part({ circuit: text, failures: count, threshold: count, retryAfterMs: maybe(count) }),
    cache: part({ policy: text, entries: count }),
    budget: maybe(z.looseObject({ calls: count, left: count, windowMs: count })),
    pin: maybe(z.looseObject({ status: text, blocks: flag })),
    repair: maybe(z.unknown()),
    auth: maybe(loginState),
    call: z.looseObject({ outcome: text, code: maybe(text), reason: maybe(text), hint: maybe(text) }),
  }),
  doctor: shape({
    ok: flag,
    findings: list(part({ check: text, level: z.enum(['ok', 'note', 'broken']), what: text, hint: maybe(text) })),
  }),
  start: serverShape,
  stop: serverShape,
  reload: serverShape,
  restart: ended,
  down: ended,
  enable: switched,
  disable: switched,
  /** Two objects: first the address to open, then the outcome. */
  login: shape({
    ...{ url: maybe(text), redirectUri: maybe(text), expiresAt: maybe(text), ok: maybe(flag), error: maybe(error) },
    ...{ server: maybe(text), identity: maybe(text), issuer: maybe(text), scopes: maybe(list(text)) },
    missing: maybe(list(text)),
  }),
  logout: shape({ server: text, isForgotten: flag, isRevoked: flag }),
  auth: shape({ store: orNull(text), key: text, logins: list(storedLogin), withoutLogin: list(text) }),
  /** `undone` with --undo, `approved` with --yes. */
  approve: z.looseObject({
    waiting: maybe(z.unknown()),
    approved: maybe(z.unknown()),
    undone: maybe(z.unknown()),
    v: z.literal(1),
  }),
  trust: shape({ file: text, isConfirmed: flag, parts: list(part({ path: text, digest: text })) }),
  'trust --list': shape({ files: list(part({ file: text, folder: text, uid: count, at: text })) }),
  'trust --remove': shape({ file: text, removed: count }),
  'key add': shape({ added: text, file: text, key: orNull(text), keyFile: orNull(text) }),
  'key list': shape({
    keys: list(
      part({
        ...{ name: text, opens: text, role: orNull(text), worker: orNull(text), expires: orNull(text) },
        isExpired: flag,
      }),
    ),
  }),
  'key revoke': shape({ revoked: text, file: text, isNatsPair: flag }),
  'key nats': shape({ config: orNull(text), output: orNull(text) }),
  /** One line on stderr. */
  worker: part({ ready: flag, worker: orNull(text), role: orNull(text), tools: count, pid: count }),
  probe: z.looseObject({
    ...{ server: text, transport: text, era: text, version: text, startMs: count, instructions: orNull(text) },
    ...{ tools: list(part({ name: text, bytes: count })), resources: count, prompts: count, v: z.literal(1) },
  }),
  help: shape({ commands: list(part({ name: text, summary: text })), topics: list(text) }),
  schema: shape({ shapes: z.record(text, z.looseObject({})) }),
  version: shape({ version: text, node: text, platform: text, arch: text, running: orNull(text) }),
} as const;

/** The JSON Schema of one output. Further members are allowed. */
export function jsonSchemaOf(name: keyof typeof jsonShapes): Record<string, unknown> {
  const { $schema: _, ...schema } = z.toJSONSchema(jsonShapes[name]);
  return open(schema) as Record<string, unknown>;
}

function open(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(open);
  if (typeof schema !== 'object' || schema === null) return schema;
  const entries = Object.entries(schema).filter(([key, value]) => key !== 'additionalProperties' || value !== false);
  return Object.fromEntries(entries.map(([key, value]) => [key, open(value)]));
}
