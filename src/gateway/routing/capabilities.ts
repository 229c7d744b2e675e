/**
 * Endpoints and servers as clients see them: capabilities, serverInfo and instructions. An endpoint with one server repeats the
 * server's own. One with many declares everything that can be carried: a client reads it once, and servers come and go.
 * Not here: the answers that carry it (eras/).
 * Invariant: nothing is declared that cannot be carried: tasks are not.
 */
import type { KnownFacts, KnownServer } from '../../catalog/catalog-server.js';
import type { Era } from '../../wire/channel.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { memberBytes } from '../../wire/json-members.js';
import type { EndpointDescription } from '../eras/era.js';
import type { Upstreams } from '../upstreams.js';
import type { View } from '../views/view.js';

/** Instructions of each server at an endpoint with many, and of all together. */
const ownCharsMax = 500;
const instructionsCharsMax = 8 * 1024;

/** Never carried beyond this hop. */
const tasksExtension = 'io.modelcontextprotocol/tasks';
const changing = ['tools', 'prompts', 'resources'] as const;

const carriedCapabilities = JSON.stringify({
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  completions: {},
  logging: {},
});
/** Declared when the capabilities of a server cannot be edited. */
const fallbackCapabilities = '{"tools":{"listChanged":true}}';

/** One JSON object. */
export function capabilitiesOf(view: View): string {
  const facts = view.only === undefined ? undefined : view.known(view.only)?.facts;
  return facts ? ownCapabilities(facts) : (view.carried ?? carriedCapabilities);
}

function ownCapabilities({ capabilities }: KnownFacts): string {
  const edits: [string, Buffer | undefined][] = [['tasks', undefined]];
  for (const key of changing) {
    const value = memberBytes(capabilities, key);
    const changed = value && editMembers(value, [['listChanged', 'true']]);
    if (changed) edits.push([key, changed]);
  }
  const extensions = memberBytes(capabilities, 'extensions');
  if (extensions && memberBytes(extensions, tasksExtension)) {
    edits.push(['extensions', editMembers(extensions, [[tasksExtension, undefined]])]);
  }
  return editMembers(capabilities, edits satisfies MemberEdits)?.toString('utf8') ?? fallbackCapabilities;
}

/** The serverInfo of this endpoint: one JSON object. */
export const serverInfoOf = (view: View, servers: ServerInfoCache): string =>
  view.only === undefined ? servers.gatewayInfo : servers.of(view.only).info;

export const describeEndpoint = (view: View, servers: ServerInfoCache): EndpointDescription => ({
  capabilities: capabilitiesOf(view),
  serverInfo: serverInfoOf(view, servers),
  instructions: instructionsOf(view),
});

export function instructionsOf(view: View): string | undefined {
  if (view.only !== undefined) return view.known(view.only)?.facts?.instructions;
  const servers = view.servers.filter((server) => isThere(view.known(server)));
  if (servers.length === 0) return undefined;
  let text = 'Tools and prompts of several servers. A name begins with the server it belongs to.';
  for (const server of servers) {
    const own = view.known(server)?.facts?.instructions?.trim();
    const line = `\n\n${server}${own ? `: ${cut(own, ownCharsMax)}` : ''}`;
    if (text.length + line.length > instructionsCharsMax) return `${text}\n\n…`;
    text += line;
  }
  return text;
}

/** Instructions leave out servers that are disabled or were never seen. */
const isThere = (known: KnownServer | undefined): boolean =>
  known !== undefined && known.state !== 'disabled' && (known.facts !== undefined || known.lists.size > 0);

/** Whole characters only. */
const cut = (text: string, max: number): string =>
  text.length <= max ? text : `${text.slice(0, max).replace(/[\ud800-\udbff]$/, '')}…`;

export interface ServerInfo {
  readonly era: Era;
  /** Undefined: never seen. */
  readonly knownEra: Era | undefined;
  /** One JSON object. */
  readonly info: string;
}

export class ServerInfoCache {
  /** For answers that are not of one server: one JSON object. */
  readonly gatewayInfo: string;
  readonly #upstreams: Upstreams;
  readonly #servers = new Map<string, ServerInfo>();
  readonly #unknown: ServerInfo;

  constructor(upstreams: Upstreams, gatewayInfo: string) {
    this.#upstreams = upstreams;
    this.gatewayInfo = gatewayInfo;
    this.#unknown = { era: 'legacy', knownEra: undefined, info: gatewayInfo };
  }

  /** A server that was never seen counts as legacy: legacy results need no mark. */
  of(server: string): ServerInfo {
    const cached = this.#servers.get(server);
    if (cached) return cached;
    const facts = this.#upstreams.known(server)?.facts;
    if (!facts) return this.#unknown;
    const info = {
      era: facts.era,
      knownEra: facts.era,
      info: facts.serverInfo?.toString('utf8') ?? this.gatewayInfo,
    };
    this.#servers.set(server, info);
    return info;
  }

  changed(server: string): void {
    this.#servers.delete(server);
  }
}
