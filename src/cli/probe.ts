/**
 * `hostler probe`: reaches one server, says who it is and what it offers, and stops it again.
 * Not here: how the report looks (probe-report.ts).
 */
import path from 'node:path';
import { defineCommand } from 'citty';
import { parseDuration } from '../config/duration.js';
import { stateFolder } from '../config/folders.js';
import { type ConfiguredServerSpec, parseServerSpec } from '../config/server-spec.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseJson, neutraliseLine } from '../kernel/terminal-text.js';
import { Connector } from '../session/connector.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import { EXIT } from './exit-codes.js';
import { type ProbeReport, renderReport } from './probe-report.js';

const usageHint = 'usage: hostler probe [options] -- <command...>   or   hostler probe [options] <url>';

export const probeCommand = (version: string) =>
  defineCommand({
    meta: {
      name: 'hostler probe',
      description: 'Start or reach one MCP server, show what it is and offers, and stop it.',
    },
    args: {
      url: { type: 'positional', required: false, description: 'URL of an HTTP server; or: -- <command...>' },
      json: { type: 'boolean', description: 'print one JSON object' },
      timeout: { type: 'string', default: '30s', description: 'how long the server may take to start' },
      env: {
        type: 'string',
        description: 'NAME=VALUE for the server, or NAME to pass ours on; may be repeated',
        valueHint: 'NAME=VALUE',
      },
      header: {
        type: 'string',
        description: '"Name: value" for an HTTP server, may be repeated',
        valueHint: 'NAME: VALUE',
      },
      cwd: { type: 'string', description: 'folder the server runs in' },
      sandbox: { type: 'string', default: 'group', description: 'group or standard (bubblewrap)' },
    },
    run: async ({ rawArgs, args }) => {
      const startTimeoutMs = parseDuration(args.timeout, '--timeout');
      const spec = specFrom(rawArgs, args);
      const report = await probe(spec, startTimeoutMs, version);
      console.log(args.json ? neutraliseJson(JSON.stringify(report)) : renderReport(report));
      return Object.keys(report.failures).length > 0 ? EXIT.failed : EXIT.done;
    },
  });

interface ProbeArgs {
  readonly url?: string | undefined;
  readonly cwd?: string | undefined;
  readonly sandbox: string;
}

function specFrom(rawArgs: string[], { url, cwd, sandbox }: ProbeArgs): ConfiguredServerSpec {
  const dashes = rawArgs.indexOf('--');
  const [command, ...rest] = dashes < 0 ? [] : rawArgs.slice(dashes + 1);
  const options = dashes < 0 ? rawArgs : rawArgs.slice(0, dashes);
  if (command === undefined) {
    if (url === undefined) throw new HostError('invalid_spec', 'nothing to probe', { hint: usageHint });
    const headers = Object.fromEntries(repeated(options, '--header').map((text) => pair(text, ':', '--header')));
    return parseServerSpec({ name: nameFrom(withoutQuery(url)), url, headers });
  }
  const env = Object.fromEntries(repeated(options, '--env').map(variable));
  return parseServerSpec({
    name: nameFrom(commandName(command, rest)),
    command,
    args: rest,
    env,
    sandbox,
    ...(cwd ? { cwd } : {}),
  });
}

/** Every value of an option that may stand more than once. */
function repeated(options: readonly string[], name: string): string[] {
  return options.flatMap((text, i) => {
    if (text.startsWith(`${name}=`)) return [text.slice(name.length + 1)];
    return text === name && options[i + 1] !== undefined ? [options[i + 1] as string] : [];
  });
}

/** The value is not quoted in the error: it may be a secret. */
function pair(text: string, separator: string, option: string): [string, string] {
  const at = text.indexOf(separator);
  if (at < 1)
    throw new HostError('invalid_spec', `${option} has no '${separator}'`, { field: option, hint: usageHint });
  return [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}

/** `NAME` alone takes the value from our own environment, so that a secret need not stand on the command line. */
function variable(text: string): [string, string] {
  if (text.includes('=')) return pair(text, '=', '--env');
  const value = process.env[text];
  if (value === undefined) {
    const hint = 'give it as NAME=VALUE, or set it in the environment of hostler';
    throw new HostError('invalid_spec', '--env names a variable that is not set', { field: '--env', hint });
  }
  return [text, value];
}

/** What stands behind the path of a URL may be a secret; a name is shown everywhere. */
const withoutQuery = (url: string): string => url.replace(/[?#].*$/s, '').replace(/\/\/[^/@]*@/, '//');

/** `node some/server/index.js` is better called by its script than by its interpreter; a script given as text is no name. */
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

async function probe(spec: ConfiguredServerSpec, startTimeoutMs: number, version: string): Promise<ProbeReport> {
  const connector = new Connector({
    client: { name: 'hostler', version, capabilities: {} },
    stateDir: stateFolder(process.env),
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
  const list = (capability: string, method: ListMethod): Promise<ServerList | undefined> =>
    capability in parsed
      ? session.list(method, { deadlineAtMs: clock.nowMs() + timeoutMs, signal })
      : Promise.resolve(undefined);
  const failures: Record<string, string> = {};
  const tryList = async (capability: string, method: ListMethod): Promise<ServerList | undefined> => {
    try {
      return await list(capability, method);
    } catch (error) {
      if (!isHostError(error) || error.code === 'cancelled') throw error;
      failures[method] = error.message;
      return undefined;
    }
  };
  try {
    const tools = await tryList('tools', 'tools/list');
    const resources = await tryList('resources', 'resources/list');
    const templates = await tryList('resources', 'resources/templates/list');
    const prompts = await tryList('prompts', 'prompts/list');
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
