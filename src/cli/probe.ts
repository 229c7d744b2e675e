/**
 * `hostler probe`: reaches one server, says who it is and what it offers, and stops it again.
 * Not here: how the report looks (probe-report.ts).
 */
import path from 'node:path';
import { stateFolder } from '../config/folders.js';
import { type ConfiguredServerSpec, parseServerSpec } from '../config/server-spec.js';
import { parseDuration } from '../config/values.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseJson, neutraliseLine } from '../kernel/terminal-text.js';
import { Connector } from '../session/connector.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { type ProbeReport, renderReport } from './probe-report.js';
import { version } from './version.js';

const usageHint = 'usage: hostler probe [options] -- <command...>   or   hostler probe [options] <url>';
const timeoutDefault = '30s';

export async function probe(words: Words): Promise<number> {
  const startTimeoutMs = parseDuration(words.text('timeout') ?? timeoutDefault, '--timeout');
  const report = await reach(specFrom(words), startTimeoutMs);
  console.log(words.has('json') ? neutraliseJson(JSON.stringify(report)) : renderReport(report));
  return Object.keys(report.failures).length > 0 ? EXIT.failed : EXIT.done;
}

function specFrom(words: Words): ConfiguredServerSpec {
  const [url] = words.positionals;
  const [command, ...args] = words.behindDashes;
  if (url !== undefined && command !== undefined) throw usage('a URL and a command were given');
  if (url !== undefined) {
    refuse(words, ['env', 'cwd', 'sandbox'], 'is for a command after --, not for a URL');
    const headers = Object.fromEntries(words.all('header').map((text) => pair(text, ':', '--header')));
    return parseServerSpec({ name: nameFrom(withoutQuery(url)), url, headers });
  }
  if (command === undefined) throw usage('nothing to probe');
  refuse(words, ['header'], 'is for a URL, not for a command');
  const env = Object.fromEntries(words.all('env').map(variable));
  const cwd = words.text('cwd');
  const sandbox = words.text('sandbox');
  return parseServerSpec({
    ...{ name: nameFrom(commandName(command, args)), command, args, env },
    ...(sandbox === undefined ? {} : { sandbox }),
    ...(cwd ? { cwd } : {}),
  });
}

/** An option that would have no effect is refused: `--sandbox` must not be dropped in silence. */
function refuse(words: Words, options: readonly string[], why: string): void {
  const odd = options.find((option) => words.all(option).length > 0);
  if (odd !== undefined) throw usage(`--${odd} ${why}`);
}

const usage = (what: string): HostError => new HostError('invalid_spec', what, { reason: 'usage', hint: usageHint });

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

async function reach(spec: ConfiguredServerSpec, startTimeoutMs: number): Promise<ProbeReport> {
  const connector = new Connector({
    client: { name: 'hostler', version, capabilities: {} },
    stateDir: stateFolder(process.env),
    hiddenPaths: [path.resolve('hostler.json')],
    // Different servers may be probed under one name, such as `npx`: they must not find each other's files.
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
