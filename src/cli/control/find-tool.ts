/**
 * Finds the server and the tool that a command names, and the input schema of the tool.
 * Invariant: a server is started only if its tools were never listed.
 */
import { findServer, readTarget, type ServerTarget } from '../../config/server-name.js';
import type { Host } from '../../host/host.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { didYouMean } from '../../kernel/nearest-name.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { embedder } from '../../policy/operation.js';
import type { ListedItem } from '../../session/lists.js';
import { memberText } from '../../wire/json-members.js';

const nameChars = 100;
const namesShown = 20;
/** A longer schema is left out of its frame. */
const schemaBytesMax = 512 * 1024;
const firstListMs = 30_000;

export interface FoundTool {
  readonly server: string;
  readonly tool: string;
  /** Absent if it is not known, or too long for one frame. */
  readonly inputSchema?: unknown;
}

export interface ToolWords {
  readonly server: string;
  /** Undefined: `server` contains both names, like `memory.read_graph`. */
  readonly tool?: string | undefined;
  readonly deadlineMs?: number | undefined;
}

export const namedServers = (host: Host) =>
  host.names().map((name) => ({ name, label: host.known(name)?.definition.label }));

/** Returns the slug of a server, given its slug or its label. Throws with the nearest name if there is no such server. */
export function serverNamed(host: Host, given: string): string {
  const names = host.names();
  const found = names.includes(given) ? given : findServer(namedServers(host), given);
  if (found !== undefined) return found;
  throw new HostError('server_not_found', `there is no server '${neutraliseLine(given, nameChars)}'`, {
    server: given,
    hint:
      names.length === 0
        ? 'the configuration has no servers'
        : `${didYouMean(given, names)}there are: ${names.slice(0, namesShown).join(', ')}`,
  });
}

export async function findTool(host: Host, words: ToolWords): Promise<FoundTool> {
  const { server, tool: written } = words.tool === undefined ? splitTarget(host, words.server) : words;
  const name = serverNamed(host, server);
  const items = await toolsOf(host, name, words.deadlineMs);
  if (!items) return { server: name, tool: written ?? '' };
  const tool = ownName(host, name, written ?? '');
  const found = items.find(({ key }) => key === tool);
  if (found) {
    const schema = memberText(found.raw, 'inputSchema');
    const isShort = schema !== undefined && schema.length <= schemaBytesMax;
    return { server: name, tool, ...(isShort ? { inputSchema: JSON.parse(schema) as unknown } : {}) };
  }
  // A tool that is pinned or denied has an error of its own, which the call reports.
  if (host.pin(name, tool) !== undefined || !host.isAllowed(embedder, name, tool)) return { server: name, tool };
  const keys = items.map(({ key }) => key);
  throw new HostError('tool_not_found', `server '${name}' has no tool '${neutraliseLine(tool, nameChars)}'`, {
    ...{ server: name, tool, execution: 'not_executed' },
    hint: `${didYouMean(tool, keys)}hostler tools ${name} lists its tools`,
  });
}

/** Reads `SERVER`, or `SERVER/TOOL` with a tool that exists. */
export async function findAbout(host: Host, about: string): Promise<ServerTarget> {
  const { server: given, tool } = readTarget(namedServers(host), about);
  const server = serverNamed(host, given);
  // A tool that is disabled is not listed, so its name is not checked again.
  if (tool === undefined || !host.isAllowed(embedder, server, tool)) return { server, ...(tool ? { tool } : {}) };
  return findTool(host, { server, tool });
}

/** Splits `SERVER.TOOL` or `SERVER/TOOL`. Both names may contain dots and slashes, so the longest name of a server is taken. */
function splitTarget(host: Host, target: string): { readonly server: string; readonly tool: string } {
  const names = new Set(host.names());
  const ends = [...target.matchAll(/[./]/g)].map(({ index }) => index);
  const end = ends.findLast((at) => names.has(target.slice(0, at))) ?? ends[0];
  if (end !== undefined) return { server: target.slice(0, end), tool: target.slice(end + 1) };
  serverNamed(host, target);
  throw new HostError('invalid_spec', `the tool of '${neutraliseLine(target, nameChars)}' is missing`, {
    ...{ server: target, reason: 'usage', execution: 'not_executed' },
    hint: `write ${target}.TOOL; hostler tools ${target} lists its tools`,
  });
}

/** Undefined if the tools are not known and cannot be listed now. */
async function toolsOf(
  host: Host,
  server: string,
  deadlineMs: number | undefined,
): Promise<readonly Pick<ListedItem, 'key' | 'raw'>[] | undefined> {
  const known = host.known(server)?.lists.get('tools/list')?.items;
  if (known) return known;
  try {
    return await host.list(server, 'tools/list', deadlineMs === undefined ? {} : { deadlineMs });
  } catch (error) {
    if (!isHostError(error)) throw error;
    return undefined;
  }
}

/** Lists the tools of the named server, or of all servers, if they are not known yet. `discover` reports failures. */
export async function listUnlisted(host: Host, given: string | undefined): Promise<void> {
  const servers = given === undefined ? host.names() : [serverNamed(host, given)];
  await Promise.all(servers.map((server) => toolsOf(host, server, firstListMs)));
}

/** Returns the server's own name of a tool, given the name that clients see (`tools.rename`). */
export function ownName(host: Host, server: string, tool: string): string {
  const rename = host.known(server)?.definition.tools.rename ?? {};
  return Object.entries(rename).find(([, shown]) => shown === tool)?.[0] ?? tool;
}
