/**
 * The first line in each direction on `stdio.sock`: the hello of the relay and the welcome of the host. After these lines the socket
 * carries MCP messages unchanged; only the line `stopping` of the host is for the relay.
 * Invariant: values of variables are in the hello and nowhere else: not in logs, notes or status.
 */
import { readFileSync, statSync } from 'node:fs';
import { configBytesMax } from '../../config/folders.js';
import { withoutForeign } from '../../config/without-foreign.js';
import { type EndReason, endReasons } from './relay-state.js';

/** To be raised with every change after which older relays or hosts could misunderstand newer ones. */
export const relayProtocol = 1;
export const helloBytesMax = 1024 * 1024;
const variablesMax = 1_000;

export interface Hello {
  readonly hostler: number;
  readonly version: string;
  /** Random id of the client, the same for every host that the relay connects to. */
  readonly client: string;
  /** Real path of the configuration. */
  readonly config: string;
  readonly env: Readonly<Record<string, string>>;
  /** Options of `up` that only the start of a host can use. */
  readonly options: Readonly<Record<string, string>>;
}

export interface Welcome {
  readonly hostler: number;
  readonly version: string;
  readonly pid: number;
  readonly url: string | null;
  readonly config: string;
  /** Sentences for the user of the relay. */
  readonly notes: readonly string[];
  /**
   * `config`: the host runs another configuration. `protocol`: the other side is too old. `stopping`: try again later. `full`: the
   * host accepts no more clients; `notes` has the number.
   */
  readonly refused?: 'config' | 'protocol' | 'stopping' | 'full';
}

/** Undefined if the line is not a JSON object with a protocol number. */
export function parseGreeting<T extends Hello | Welcome>(line: string): T | undefined {
  try {
    const value: unknown = JSON.parse(line);
    const isGreeting = typeof value === 'object' && value !== null && 'hostler' in value;
    return isGreeting && typeof value.hostler === 'number' ? (value as T) : undefined;
  } catch {
    return undefined;
  }
}

/** Like `parseGreeting`, and checks the members that a host reads. */
export function parseHello(line: string): Hello | undefined {
  const hello = parseGreeting<Hello>(line);
  if (!hello || ![hello.version, hello.client, hello.config].every((each) => typeof each === 'string'))
    return undefined;
  const isTable = (value: unknown) =>
    typeof value === 'object' && value !== null && Object.values(value).every((each) => typeof each === 'string');
  return isTable(hello.env) && isTable(hello.options) && /^[\w-]{1,64}$/.test(hello.client) ? hello : undefined;
}

export const stoppingLine = (reason: EndReason): string => `{"hostler":"stopping","reason":"${reason}"}\n`;

export function parseStopping(line: string): EndReason | undefined {
  const [, reason] = /^\{"hostler":"stopping","reason":"(\w+)"\}$/.exec(line) ?? [];
  return endReasons.find((each) => each === reason);
}

/** The forms of config/placeholder-syntax.ts and config/client-keys.ts, each with the name in a group. */
const namesIn: readonly RegExp[] = [
  /\$\{\s*([A-Za-z_]\w*)(?::-[^{}]*)?\s*\}|\{env:([^{}:"]*)(?::-[^{}]*)?\}/g,
  /["'](?:\$(?:env:)?(\w+)|%(\w+)%)["']/g,
  /\bbearer_token_env_var["']?\s*[:=]\s*["']([^"']*)["']/g,
];
const listsOfNames = /\benv_(?:vars|keys)["']?\s*[:=]\s*\[([^\]]*)\]/g;
const tablesOfNames = /\benv_http_headers["']?\s*[:=]\s*\{([^}]*)\}/g;

/** Names of the variables that the configuration reads, and PATH. The file may be invalid. Values that only a client reads do not count. */
export function variableNames(config: string): readonly string[] {
  const text = withoutForeign(textOf(config), true);
  const names = new Set(['PATH']);
  const collect = (within: string, form: RegExp) => {
    for (const [, one, other] of within.matchAll(form)) {
      if (names.size >= variablesMax) return;
      const name = (one ?? other ?? '').trim();
      if (name !== '') names.add(name);
    }
  };
  for (const form of namesIn) collect(text, form);
  for (const [, list = ''] of text.matchAll(listsOfNames)) collect(list, /["']([^"']*)["']/g);
  for (const [, table = ''] of text.matchAll(tablesOfNames)) collect(table, /[:=]\s*["']([^"']*)["']/g);
  return [...names];
}

function textOf(file: string): string {
  try {
    return statSync(file).size > configBytesMax ? '' : readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Compares versions such as 1.2.10 by their numbers. */
export function isNewerVersion(version: string, than: string): boolean {
  const [one, other] = [version, than].map((text) =>
    text.split(/[.+-]/, 3).map((part) => Number.parseInt(part, 10) || 0),
  );
  const at = [0, 1, 2].find((each) => one?.[each] !== other?.[each]);
  return at !== undefined && (one?.[at] ?? 0) > (other?.[at] ?? 0);
}
