/**
 * What an endpoint says that it can do, and how it is to be used: of one server in its own words; of many everything that can
 * be carried, since a client is told once and servers come, go and learn. A single server that was never seen is offered like
 * many: the client does not wait for it, and a list that it turns out not to have is empty.
 * Not here: the answers this goes into (initialize.ts, discover.ts).
 * Invariant: nothing is offered that could not be carried: tasks are not.
 */
import type { KnownFacts, KnownServer } from '../../catalog/catalog-server.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { memberBytes } from '../../wire/json-members.js';
import type { View } from '../views/view.js';
import type { ServerInfoCache } from './server-info.js';

/** Of each server where there are many, and of all together. */
const ownCharsMax = 500;
const instructionsCharsMax = 8 * 1024;

/** What never gets further than this hop. */
const tasksExtension = 'io.modelcontextprotocol/tasks';
const changing = ['tools', 'prompts', 'resources'] as const;

const ofMany = JSON.stringify({
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  completions: {},
  logging: {},
});
/** Offered when the capabilities of a server cannot be parsed. */
const fallbackCapabilities = '{"tools":{"listChanged":true}}';

/** One JSON object. */
export function capabilitiesOf(view: View): string {
  const facts = view.only === undefined ? undefined : view.known(view.only)?.facts;
  return facts ? ownCapabilities(facts) : (view.carried ?? ofMany);
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

/** Who answers here: one JSON object. */
export const infoOf = (view: View, facts: ServerInfoCache): string =>
  view.only === undefined ? facts.gatewayInfo : facts.of(view.only).info;

export function instructionsOf(view: View): string | undefined {
  if (view.only !== undefined) return view.known(view.only)?.facts?.instructions;
  const servers = view.servers.filter((server) => isThere(view.known(server)));
  if (servers.length === 0) return undefined;
  let text = 'Tools and prompts of several servers. A name begins with the server it belongs to.';
  for (const server of servers) {
    const own = view.known(server)?.facts?.instructions?.trim();
    const said = own === undefined || own === '' ? '' : `: ${cut(own, ownCharsMax)}`;
    const line = `\n\n${server}${said}`;
    if (text.length + line.length > instructionsCharsMax) return `${text}\n\n…`;
    text += line;
  }
  return text;
}

/** Nobody is sent to a server that is switched off, or was never seen. */
const isThere = (known: KnownServer | undefined): boolean =>
  known !== undefined && known.state !== 'disabled' && (known.facts !== undefined || known.lists.size > 0);

/** Whole characters only. */
const cut = (text: string, max: number): string =>
  text.length <= max ? text : `${text.slice(0, max).replace(/[\ud800-\udbff]$/, '')}…`;
