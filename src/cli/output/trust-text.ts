/**
 * Shows the user the parts of a configuration that need confirmation.
 * Invariants: text of the file cannot move the cursor or hide other text; cut text is marked. Values that are secrets by name
 * or shape are hidden, but never a part of a command that a shell would run.
 */
import { userInfo } from 'node:os';
import { createRedactor } from '../../kernel/redact.js';
import { neutralise, neutraliseLine } from '../../kernel/terminal-text.js';
import { type ConfigPart, isTable } from '../trust/config-parts.js';
import { pathOf } from '../trust/unconfirmed-changes.js';

const valueChars = 2_000;
const partsShown = 200;
const startsNothing = 'it starts no program, reaches no address and admits no client';
const secretName = /key|token|secret|passw|pwd|credential|auth|cookie|session/i;
/** A path, an address or a list of options. A variable with such a value may make a program run code, so its name does not hide it. */
const runnable = /^[.~/]|[\s:,]/;
/** Characters of shell code that no token contains. Such text is shown, so a payload cannot hide as a secret. */
const script = /[$`|;&()<>\n]/;

const { redact } = createRedactor();

export interface TrustQuestion {
  readonly file: string;
  readonly uid: number;
  readonly ownUid: number | undefined;
  /** Confirmed digests; undefined if the file was never confirmed. */
  readonly confirmed: ReadonlySet<string> | undefined;
  readonly parts: readonly ConfigPart[];
}

export function trustText({ file, uid, ownUid, confirmed, parts }: TrustQuestion): string {
  const open = parts.filter(({ digest }) => !confirmed?.has(digest));
  const rest = parts.length - open.length;
  return [
    neutraliseLine(file, valueChars),
    `  owner: ${ownerText(uid, ownUid)}`,
    `  ${confirmed === undefined ? 'never confirmed on this machine' : `confirmed before; ${open.length} changed, ${rest} unchanged`}`,
    '',
    ...(open.length === 0 ? [`  ${parts.length === 0 ? startsNothing : 'nothing changed since then'}`] : []),
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

function partLines({ at, value, fileEnv }: ConfigPart): string[] {
  const [table] = at;
  if (table === 'secrets' && isTable(value) && isTable(value.exec)) {
    const { exec, ...rest } = value;
    return [`  ${pathOf(at)}: ${shown(JSON.stringify(rest))}`, ...Object.entries(exec).map(commandLine)];
  }
  if (table !== 'mcpServers' || !isTable(value)) return [`  ${pathOf(at)}: ${shown(JSON.stringify(value))}`];
  const { command, args, url, env, headers, ...rest } = value;
  const argv = [command, ...(Array.isArray(args) ? args : [])].filter((each) => each !== undefined);
  return [
    `  ${pathOf(at)}`,
    ...(argv.length === 0 ? [] : [`    runs     ${argv.map(quotedArgument).join(' ')}`]),
    ...(url === undefined ? [] : [`    reaches  ${shown(String(url))}`]),
    ...(env === undefined ? [] : [`    env      ${members(env, isSecretVariable)}`]),
    ...(headers === undefined ? [] : [`    headers  ${members(headers, () => true)}`]),
    ...Object.entries(rest).map(([key, each]) => `    ${pathOf([key]).padEnd(7)}  ${shown(JSON.stringify(each))}`),
    // A variable such as NODE_OPTIONS makes a program run code, so the path of the file is not enough.
    ...(fileEnv === undefined ? [] : [`      sets   ${members(fileEnv, isSecretVariable)}`]),
  ];
}

function commandLine([name, entry]: [string, unknown]): string {
  const { argv, ...rest } = isTable(entry) ? entry : { argv: entry };
  const runs = (Array.isArray(argv) ? argv : [argv]).map(quotedArgument).join(' ');
  return `    ${pathOf([name]).padEnd(7)}  runs ${runs}${Object.keys(rest).length === 0 ? '' : `  ${shown(JSON.stringify(rest))}`}`;
}

/** Quotes one argument as for a shell. */
function quotedArgument(arg: unknown): string {
  const text = shown(typeof arg === 'string' ? arg : JSON.stringify(arg), true);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

const isSecretVariable = (name: string, text: string): boolean =>
  secretName.test(name) && !runnable.test(text) && !script.test(text);

/** A placeholder is shown as written: it is not a secret, and it names the source of the value. */
function members(table: unknown, isSecret: (name: string, text: string) => boolean): string {
  if (!isTable(table)) return shown(JSON.stringify(table));
  const pairs = Object.entries(table).map(([name, value]) => {
    const text = String(value);
    const hidden = isSecret(name, text) && !text.includes('${');
    return `${pathOf([name])}=${hidden ? `[hidden, ${text.length} characters]` : shown(text, true)}`;
  });
  return pairs.length === 0 ? 'none' : pairs.join('  ');
}

/** `isProgram`: a shell may run the text, so text that looks like shell code is not redacted. */
function shown(text: string, isProgram = false): string {
  const clean = isProgram && script.test(text) ? text : redact(text);
  const cut = clean.length - valueChars;
  const line = neutralise(clean.slice(0, valueChars)).replaceAll('\n', '\\n').replaceAll('\t', '\\t');
  return cut > 0 ? `${line} [${cut} more characters: look at the file]` : line;
}
