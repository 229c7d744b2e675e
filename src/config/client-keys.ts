/**
 * Maps the keys that MCP clients write to Hostler's keys. client-config.ts applies the table, and docs/configuration.md lists the
 * same rows.
 * Checked on 2026-11-17 against Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Cline, Roo, Zed, Codex, Gemini CLI,
 * opencode, Goose, Copilot CLI, Kiro, Amp and Warp.
 */

/** Returns the value of Hostler's key; undefined leaves the key out. */
type Convert = (value: unknown) => unknown;

export interface ClientKey {
  /** Path of Hostler's key in the entry. */
  readonly to: string;
  readonly convert?: Convert;
}

/** Keys of the top level that hold servers. `mcp` may also hold settings. */
export const serverTables: readonly string[] = [
  ...['mcpServers', 'servers', 'context_servers', 'mcp_servers', 'amp.mcpServers', 'mcp.servers', 'mcp'],
];

/** Keys of clients at the top level that look like misspelt keys of Hostler. */
export const clientTopKeys: ReadonlySet<string> = new Set(['inputs', 'sandbox', 'rules', 'modes', 'models', 'mode']);

const transports: Readonly<Record<string, string | undefined>> = {
  sse: 'http-sse',
  'streamable-http': 'streamable-http',
  streamable_http: 'streamable-http',
  streamablehttp: 'streamable-http',
  'http-stream': 'streamable-http',
};
/** Redundant values: the keys `command` and `url` already choose the transport. */
const impliedTransports: ReadonlySet<string> = new Set(['stdio', 'local', 'http', 'remote']);

export const transportOf: Convert = (type) => {
  if (typeof type !== 'string') return undefined;
  const name = type.toLowerCase();
  return impliedTransports.has(name) ? undefined : (transports[name] ?? type);
};

const secondsBelow = 1_000;
const durationMaxMs = 24 * 3_600_000;
const inMs = (value: unknown, unitMs: (number: number) => number): unknown => {
  const number = typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value) ? Number(value) : value;
  if (typeof number !== 'number') return number ?? undefined;
  // Clients write 0 for `no limit`; Hostler then uses its default limit.
  return number > 0 ? Math.min(Math.ceil(number * unitMs(number)), durationMaxMs) : undefined;
};
/**
 * Cline, Codex and Goose write seconds, the others milliseconds. A number below 1,000 counts as seconds, because no client has a
 * limit below one second or above 16 minutes.
 */
const timeout: Convert = (value) => inMs(value, (number) => (number < secondsBelow ? 1_000 : 1));
const seconds: Convert = (value) => inMs(value, () => 1_000);

const not: Convert = (value) => (typeof value === 'boolean' ? !value : (value ?? undefined));

const variable = (name: unknown): unknown => (typeof name === 'string' ? `\${env:${name}}` : name);
/** `["NAME"]` → `{ NAME: "${env:NAME}" }`. */
const variables: Convert = (names) =>
  Array.isArray(names) && names.every((name) => typeof name === 'string')
    ? Object.fromEntries(names.map((name) => [name, variable(name)]))
    : (names ?? undefined);
const variableValues: Convert = (table) =>
  typeof table === 'object' && table !== null
    ? Object.fromEntries(Object.entries(table).map(([name, value]) => [name, variable(value)]))
    : (table ?? undefined);
const bearer: Convert = (name) => ({ Authorization: typeof name === 'string' ? `Bearer \${env:${name}}` : name });

/** Copilot CLI writes `*` for all tools. */
export const toolList: Convert = (tools) => {
  const list = typeof tools === 'string' ? [tools] : tools;
  return Array.isArray(list) && list.includes('*') ? undefined : (list ?? undefined);
};

export const clientKeys: ReadonlyMap<string, ClientKey> = new Map(
  Object.entries({
    type: { to: 'transport', convert: transportOf },
    transportType: { to: 'transport', convert: transportOf },
    cmd: { to: 'command' },
    serverUrl: { to: 'url' },
    httpUrl: { to: 'url' },
    uri: { to: 'url' },
    http_headers: { to: 'headers' },
    env_http_headers: { to: 'headers', convert: variableValues },
    bearer_token_env_var: { to: 'headers', convert: bearer },
    environment: { to: 'env' },
    envs: { to: 'env' },
    env_vars: { to: 'env', convert: variables },
    env_keys: { to: 'env', convert: variables },
    working_directory: { to: 'cwd' },
    workingDirectory: { to: 'cwd' },
    disabled: { to: 'enabled', convert: not },
    isActive: { to: 'enabled' },
    timeout: { to: 'timeouts.call', convert: timeout },
    tool_timeout_sec: { to: 'timeouts.call', convert: seconds },
    startup_timeout_sec: { to: 'timeouts.start', convert: seconds },
    startup_timeout_ms: { to: 'timeouts.start', convert: (value) => inMs(value, () => 1) },
    includeTools: { to: 'tools.allow', convert: toolList },
    enabledTools: { to: 'tools.allow', convert: toolList },
    enabled_tools: { to: 'tools.allow', convert: toolList },
    disabledTools: { to: 'tools.deny' },
    excludeTools: { to: 'tools.deny' },
    disabled_tools: { to: 'tools.deny' },
  } satisfies Record<string, ClientKey>),
);

/** Keys of clients that have no effect here, and are reported once. */
export const unusedKeys: ReadonlySet<string> = new Set([
  ...['autoApprove', 'alwaysAllow', 'autoStart', 'trust', 'dev', 'sandboxEnabled', 'headersHelper', 'oauth'],
  ...['scopes', 'socket', 'settings'],
]);

/** Keys of clients that describe an entry. They are left out without a report. */
export const descriptiveKeys: ReadonlySet<string> = new Set([
  ...['description', 'name', 'displayName', 'title', 'note', 'notes', 'comment', '_comment', '//', '$comment', 'icon'],
  ...['id', 'tags', 'version', 'source', 'gallery', 'provider', 'registryUrl', 'homepage', 'repository'],
]);
