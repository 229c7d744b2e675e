/**
 * What an endpoint says that it can do, and how it is to be used: of one server in its own words, of many what any of them has.
 * Not here: the answers this goes into (initialize.ts, discover.ts).
 * Invariant: nothing is offered that could not be carried: tasks are not.
 */
import type { KnownFacts } from '../../host/host-interface.js';
import { findMember, memberBytes, memberText } from '../../wire/json-members.js';
import { editMembers, type MemberEdits } from '../messages/object-splice.js';
import { offers, type View } from '../views/view.js';
import type { ServerFacts } from './server-facts.js';

/** Of each server where there are many, and of all together. */
const ownCharsMax = 500;
const instructionsCharsMax = 8 * 1024;

/** What never gets further than this hop. */
const tasksExtension = 'io.modelcontextprotocol/tasks';
const changing = ['tools', 'prompts', 'resources'] as const;

const unknownServer = '{"tools":{"listChanged":true}}';

/** One JSON object. */
export function capabilitiesOf(view: View): string {
  if (view.only !== undefined) {
    const facts = view.known(view.only)?.facts;
    return facts ? ownCapabilities(facts) : unknownServer;
  }
  const servers = view.servers.map((server) => view.known(server));
  const any = (offer: Parameters<typeof offers>[1]) => servers.some((known) => offers(known, offer));
  const subscribe = servers.some((known) => known?.facts && hasSubscribe(known.facts));
  return JSON.stringify({
    // Servers and their tools come and go: there is always a list.
    tools: { listChanged: true },
    ...(any('prompts') ? { prompts: { listChanged: true } } : {}),
    ...(any('resources') ? { resources: { ...(subscribe ? { subscribe } : {}), listChanged: true } } : {}),
    ...(any('completions') ? { completions: {} } : {}),
    ...(any('logging') ? { logging: {} } : {}),
  });
}

function ownCapabilities({ capabilities }: KnownFacts): string {
  const edits: [string, Buffer | undefined][] = [['tasks', undefined]];
  for (const key of changing) {
    const value = memberBytes(capabilities, key);
    const changed = value && editMembers(value, [['listChanged', 'true']]);
    if (changed) edits.push([key, changed]);
  }
  const extensions = memberBytes(capabilities, 'extensions');
  if (extensions && findMember(extensions, tasksExtension)) {
    edits.push(['extensions', editMembers(extensions, [[tasksExtension, undefined]])]);
  }
  return editMembers(capabilities, edits satisfies MemberEdits)?.toString('utf8') ?? unknownServer;
}

function hasSubscribe({ capabilities }: KnownFacts): boolean {
  const resources = memberBytes(capabilities, 'resources');
  return resources !== undefined && memberText(resources, 'subscribe') === 'true';
}

/** Who answers here: one JSON object. */
export const infoOf = (view: View, facts: ServerFacts): string =>
  view.only === undefined ? facts.gatewayInfo : facts.of(view.only).info;

export function instructionsOf(view: View): string | undefined {
  if (view.only !== undefined) return view.known(view.only)?.facts?.instructions;
  if (view.servers.length === 0) return undefined;
  let text = 'Tools and prompts of several servers. A name begins with the server it belongs to.';
  for (const server of view.servers) {
    const own = view.known(server)?.facts?.instructions?.trim();
    const said = own === undefined || own === '' ? '' : `: ${cut(own, ownCharsMax)}`;
    const line = `\n\n${server}${said}`;
    if (text.length + line.length > instructionsCharsMax) return `${text}\n\n…`;
    text += line;
  }
  return text;
}

/** Whole characters only. */
const cut = (text: string, max: number): string =>
  text.length <= max ? text : `${text.slice(0, max).replace(/[\ud800-\udbff]$/, '')}…`;
