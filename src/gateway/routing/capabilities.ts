/**
 * The capabilities, serverInfo and instructions of an endpoint. An endpoint with one server repeats those of the server.
 * An endpoint with many servers declares all that the gateway can carry: clients read capabilities once, and servers change.
 * Not here: the handshake results that contain them (eras/).
 * Invariant: the gateway declares only capabilities that it can carry. It cannot carry tasks.
 */
import type { KnownFacts, KnownServer } from '../../catalog/catalog-server.js';
import { eraNamed, oldestEra } from '../../session/eras/eras.js';
import type { ServerEra } from '../../session/eras/server-era.js';
import type { Era } from '../../wire/channel.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { memberBytes } from '../../wire/json-members.js';
import type { EndpointDescription } from '../eras/era.js';
import type { Upstreams } from '../upstreams.js';
import type { View } from '../views/view.js';

/** Limits of the instructions at an endpoint with many servers: for each server, and in total. */
const ownCharsMax = 500;
const instructionsCharsMax = 8 * 1024;

/** The extension that the gateway does not carry. */
const tasksExtension = 'io.modelcontextprotocol/tasks';
const changing = ['tools', 'prompts', 'resources'] as const;

const forwardedCapabilities = JSON.stringify({
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  completions: {},
  logging: {},
});
/** Declared when the capabilities of a server cannot be edited. */
const fallbackCapabilities = '{"tools":{"listChanged":true}}';

/** Returns one JSON object. */
export function capabilitiesOf(view: View): string {
  const facts = view.only === undefined ? undefined : view.known(view.only)?.facts;
  return facts ? ownCapabilities(facts) : (view.carried ?? forwardedCapabilities);
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

/** Returns one JSON object. */
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

/** Instructions omit servers that are stopped, disabled or have never run. */
const isThere = (known: KnownServer | undefined): boolean =>
  known !== undefined &&
  known.state !== 'disabled' &&
  known.state !== 'stopped' &&
  (known.facts !== undefined || known.lists.size > 0);

/** Never splits a surrogate pair. */
const cut = (text: string, max: number): string =>
  text.length <= max ? text : `${text.slice(0, max).replace(/[\ud800-\udbff]$/, '')}…`;

export interface ServerInfo {
  readonly era: Era;
  /** Undefined if the server has never run. */
  readonly knownEra: ServerEra | undefined;
  /** One JSON object. */
  readonly info: string;
}

export class ServerInfoCache {
  /** serverInfo for answers that do not come from one server; one JSON object. */
  readonly gatewayInfo: string;
  readonly #upstreams: Upstreams;
  readonly #servers = new Map<string, ServerInfo>();
  readonly #unknown: ServerInfo;

  constructor(upstreams: Upstreams, gatewayInfo: string) {
    this.#upstreams = upstreams;
    this.gatewayInfo = gatewayInfo;
    this.#unknown = { era: oldestEra.name, knownEra: undefined, info: gatewayInfo };
  }

  /** A server that has never run counts as one of the oldest era, whose results need no `resultType`. */
  of(server: string): ServerInfo {
    const cached = this.#servers.get(server);
    if (cached) return cached;
    const facts = this.#upstreams.known(server)?.facts;
    if (!facts) return this.#unknown;
    const info = {
      era: facts.era,
      knownEra: eraNamed(facts.era),
      info: facts.serverInfo?.toString('utf8') ?? this.gatewayInfo,
    };
    this.#servers.set(server, info);
    return info;
  }

  changed(server: string): void {
    this.#servers.delete(server);
  }
}
