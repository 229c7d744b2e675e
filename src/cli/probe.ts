/**
 * `hostler probe`: connects to one server, reports its facts and lists, and stops it.
 * Not here: the report as text (output/probe-report.ts).
 */
import path from 'node:path';
import { stateFolder } from '../config/folders.js';
import { type ConfiguredServerSpec, parseServerSpec } from '../config/server-spec.js';
import { parseDuration } from '../config/values.js';
import { isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { Connector } from '../session/connector.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import { type Command, type ParsedArgs, usageError } from './command.js';
import { EXIT } from './exit-codes.js';
import { printJson } from './output/print.js';
import { type ProbeReport, renderReport } from './output/probe-report.js';
import { version } from './version.js';

const timeoutDefault = '30s';

export const probe: Command = {
  name: 'probe',
  usage:
    '[--json] [--timeout 30s] [--env NAME=VALUE]... [--cwd DIR] [--sandbox group|standard] -- COMMAND... | [--header "NAME: VALUE"]... URL',
  example: 'probe -- npx -y @modelcontextprotocol/server-memory',
  options: {
    json: 'print one JSON object',
    'timeout=': 'time limit of the start; default 30s',
    'env=*': 'NAME=VALUE for the server, or NAME to pass on its value',
    'header=*': '"Name: value" for an HTTP server',
    'cwd=': 'working folder of the server',
    'sandbox=': 'group, or standard (bubblewrap)',
  },
  positionals: [0, 1],
  takesCommand: true,
  async run(args) {
    const startTimeoutMs = parseDuration(args.text('timeout') ?? timeoutDefault, '--timeout');
    const report = await reach(specOf(args), startTimeoutMs);
    if (args.has('json')) printJson(report);
    else console.log(renderReport(report));
    return Object.keys(report.failures).length > 0 ? EXIT.failed : EXIT.done;
  },
};

function specOf(args: ParsedArgs): ConfiguredServerSpec {
  const [url] = args.positionals;
  const [command, ...rest] = args.afterDashes;
  if (url !== undefined && command !== undefined) throw usageError(probe, 'give a URL or a command, not both');
  if (url !== undefined) {
    refuse(args, ['env', 'cwd', 'sandbox'], 'is for a command after --, not for a URL');
    const headers = Object.fromEntries(args.all('header').map((text) => pair(text, ':', '--header')));
    return parseServerSpec({ name: nameFrom(withoutQuery(url)), url, headers });
  }
  if (command === undefined) throw usageError(probe, 'give a URL, or a command after --');
  refuse(args, ['header'], 'is for a URL, not for a command');
  const env = Object.fromEntries(args.all('env').map(variable));
  const options = { cwd: args.text('cwd') || undefined, sandbox: args.text('sandbox') };
  return parseServerSpec({ name: nameFrom(commandName(command, rest)), command, args: rest, env, ...options });
}

/** Refuses options that would have no effect: `--sandbox` must not be ignored silently. */
function refuse(args: ParsedArgs, options: readonly string[], why: string): void {
  const odd = options.find((option) => args.all(option).length > 0);
  if (odd !== undefined) throw usageError(probe, `--${odd} ${why}`);
}

/** The error does not quote the value, because it may be a secret. */
function pair(text: string, separator: string, option: string): [string, string] {
  const at = text.indexOf(separator);
  if (at < 1) throw usageError(probe, `${option} has no '${separator}'`);
  return [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}

/** `NAME` alone passes on the value from the environment, so a secret need not be on the command line. */
function variable(text: string): [string, string] {
  if (text.includes('=')) return pair(text, '=', '--env');
  const value = process.env[text];
  if (value !== undefined) return [text, value];
  const hint = 'write NAME=VALUE, or set the variable in the environment of hostler';
  throw usageError(probe, '--env names a variable that is not set', hint);
}

/** The result becomes a server name, which is shown. A query or a login may be a secret. */
const withoutQuery = (url: string): string => url.replace(/[?#].*$/s, '').replace(/\/\/[^/@]*@/, '//');

/** `node some/server/index.js` is named `server`, after its script. Inline code is not used as a name. */
function commandName(command: string, rest: readonly string[]): string {
  const isRunner = /^(?:node|npx|uvx?|python3?|deno|bun|sh|bash|perl)$/.test(path.basename(command));
  const script = rest[0]?.startsWith('-') || /\s/.test(rest[0] ?? ' ') ? undefined : rest[0];
  const parts = (isRunner && script ? script : command)
    .split(/[\\/]/)
    .filter((part) => !/^(?:index\.\w+|dist|build|src|)$/.test(part));
  return parts.at(-1) ?? command;
}

const nameFrom = (text: string): string => {
  const name = text
    .replace(/^https?:\/\//, '')
    .replace(/[^A-Za-z0-9_.-]+/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 64);
  return name === '' ? 'server' : name;
};

async function reach(spec: ConfiguredServerSpec, startTimeoutMs: number): Promise<ProbeReport> {
  const connector = new Connector({
    client: { name: 'hostler', version, capabilities: {} },
    stateDir: stateFolder(process.env),
    hiddenPaths: [path.resolve('hostler.json')],
    // Different servers may have the same name here, such as `npx`. They must not share a home.
    keepsHomes: false,
    ambient: process.env,
    onProblem: (problem) => console.error(`hostler: ${neutraliseLine(String(problem), LIMITS.quotedChars)}`),
  });
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  try {
    await connector.reapLeftovers();
    const session = await connector.connect(spec, { startTimeoutMs, signal: interrupted.signal });
    return await describe(session, connector, startTimeoutMs, interrupted.signal);
  } finally {
    await connector.close();
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
}

async function describe(
  session: Session,
  connector: Connector,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<ProbeReport> {
  const { clock, clean } = connector;
  const { era, version, capabilities, serverInfo, instructions } = session.facts;
  const parsed = JSON.parse(capabilities.toString('utf8')) as Record<string, unknown>;
  const failures: Record<string, string> = {};
  const list = async (capability: string, method: ListMethod): Promise<ServerList | undefined> => {
    if (!(capability in parsed)) return undefined;
    try {
      return await session.list(method, { deadlineAtMs: clock.nowMs() + timeoutMs, signal });
    } catch (error) {
      if (!isHostError(error) || error.code === 'cancelled') throw error;
      failures[method] = error.message;
      return undefined;
    }
  };
  try {
    const tools = await list('tools', 'tools/list');
    const resources = await list('resources', 'resources/list');
    const templates = await list('resources', 'resources/templates/list');
    const prompts = await list('prompts', 'prompts/list');
    const stopStartedMs = clock.nowMs();
    await session.close();
    const { channel } = session;
    return {
      server: session.server,
      transport: channel.kind,
      era,
      version,
      serverInfo: serverInfo ? (JSON.parse(serverInfo.toString('utf8')) as Record<string, unknown>) : null,
      capabilities: parsed,
      instructions: instructions === undefined ? null : clean(instructions),
      startMs: Math.round(session.startedInMs),
      tools: (tools?.items ?? []).map(({ key, raw }) => ({ name: key, bytes: raw.length })),
      droppedTools: Object.fromEntries(session.droppedTools),
      resources: resources?.items.length ?? 0,
      resourceTemplates: templates?.items.length ?? 0,
      prompts: prompts?.items.length ?? 0,
      failures,
      junkLines: channel.counters.junk,
      stopMs: Math.round(clock.nowMs() - stopStartedMs),
      stop: channel instanceof StdioChannel ? (channel.describe().stop ?? null) : null,
    };
  } catch (error) {
    await session.close();
    throw error;
  }
}
