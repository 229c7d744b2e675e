/**
 * What a configuration would run, as text for the person who decides about it.
 *
 * Invariants: nothing in the file can move the cursor or hide; text that is cut says so; values that are secrets by their place
 * or shape are hidden, but never a piece of a command that a shell would run.
 */
import { userInfo } from 'node:os';
import { createRedactor } from '../../kernel/redact.js';
import { neutralise, neutraliseLine } from '../../kernel/terminal-text.js';
import { type ConfigPart, isTable } from './config-parts.js';
import { pathOf } from './hold-changes.js';

const valueChars = 2_000;
const partsShown = 200;
const secretName = /key|token|secret|passw|pwd|credential|auth|cookie|session/i;
/** A path, an address or a list of options: whatever the variable is called, it may make a program run something. */
const runnable = /^[.~/]|[\s:,]/;
/** Of a program for a shell, and not of any token: a payload must not pass for a secret. */
const script = /[$`|;&()<>\n]/;

const { redact } = createRedactor();

export interface TrustQuestion {
  readonly file: string;
  readonly uid: number;
  readonly ownUid: number | undefined;
  /** Undefined: it was never confirmed. */
  readonly confirmed: ReadonlySet<string> | undefined;
  readonly parts: readonly ConfigPart[];
}

export function trustText({ file, uid, ownUid, confirmed, parts }: TrustQuestion): string {
  const open = parts.filter(({ digest }) => !confirmed?.has(digest));
  const rest = parts.length - open.length;
  return [
    neutraliseLine(file, valueChars),
    `  owner: ${ownerText(uid, ownUid)}`,
    `  ${confirmed === undefined ? 'never confirmed on this machine' : `confirmed before; ${open.length} changed, ${rest} as confirmed`}`,
    '',
    ...(open.length === 0 ? ['  nothing in it is started, reached or let in'] : []),
    ...open.slice(0, partsShown).flatMap(partLines),
    ...(open.length > partsShown ? [`  and ${open.length - partsShown} more: look at the file`] : []),
  ].join('\n');
}

export const isForeign = (uid: number, ownUid: number | undefined): boolean => ownUid !== undefined && uid !== ownUid;

export function ownerText(uid: number, ownUid: number | undefined): string {
  if (ownUid === undefined) return 'not known on this system';
  return isForeign(uid, ownUid) ? `user ${uid}, who is NOT you` : `${neutraliseLine(ownName(uid), 100)} (you)`;
}

function ownName(uid: number): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${uid}`;
  }
}

function partLines({ at, value }: ConfigPart): string[] {
  const [table] = at;
  if (table !== 'mcpServers' || !isTable(value)) return [`  ${pathOf(at)}: ${shown(JSON.stringify(value))}`];
  const { command, args, url, env, headers, ...rest } = value;
  const words = [command, ...(Array.isArray(args) ? args : [])].filter((word) => word !== undefined);
  return [
    `  ${pathOf(at)}`,
    ...(words.length === 0 ? [] : [`    runs     ${words.map(wordText).join(' ')}`]),
    ...(url === undefined ? [] : [`    reaches  ${shown(String(url))}`]),
    ...(env === undefined ? [] : [`    env      ${members(env, isSecretVariable)}`]),
    ...(headers === undefined ? [] : [`    headers  ${members(headers, () => true)}`]),
    ...Object.entries(rest).map(([key, each]) => `    ${pathOf([key]).padEnd(7)}  ${shown(JSON.stringify(each))}`),
  ];
}

/** One word of a command line, as a shell would have to be given it. */
function wordText(word: unknown): string {
  const text = shown(typeof word === 'string' ? word : JSON.stringify(word), true);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

const isSecretVariable = (name: string, text: string): boolean =>
  secretName.test(name) && !runnable.test(text) && !script.test(text);

/** A placeholder is shown as it is written: it is no secret, and says where the value comes from. */
function members(table: unknown, isSecret: (name: string, text: string) => boolean): string {
  if (!isTable(table)) return shown(JSON.stringify(table));
  const pairs = Object.entries(table).map(([name, value]) => {
    const text = String(value);
    const hidden = isSecret(name, text) && !text.includes('${');
    return `${pathOf([name])}=${hidden ? `[hidden, ${text.length} characters]` : shown(text, true)}`;
  });
  return pairs.length === 0 ? 'none' : pairs.join('  ');
}

/** `isProgram`: a shell may be given it, so that what looks like one is shown as it is. */
function shown(text: string, isProgram = false): string {
  const clean = isProgram && script.test(text) ? text : redact(text);
  const cut = clean.length - valueChars;
  const line = neutralise(clean.slice(0, valueChars)).replaceAll('\n', '\\n').replaceAll('\t', '\\t');
  return cut > 0 ? `${line} [${cut} more characters: look at the file]` : line;
}
