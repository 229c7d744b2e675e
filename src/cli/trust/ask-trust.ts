/**
 * Asks the user at the terminal whether a configuration may be used; without a terminal, refuses the configuration.
 * Not here: the text (output/trust-text.ts), storing the answer (trust-store.ts).
 */
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { isForeign, ownerText, trustText } from '../output/trust-text.js';
import { partsText } from '../output/waiting-text.js';
import { type AskTrust, type Reading, trustStoreOf } from './trusted-source.js';
import { pathOf } from './unconfirmed-changes.js';

export interface Terminal {
  readonly input: Readable & { readonly isTTY?: boolean };
  readonly output: Writable & { readonly isTTY?: boolean };
}

const pathChars = 300;

export const ownTerminal = (): Terminal => ({ input: process.stdin, output: process.stderr });
const ownUid = (): number | undefined => process.getuid?.();

/** `terminalOf`: called only for a question, because a start that asks nothing need not load the stream of stdin. */
export const askTrust =
  (env: NodeJS.ProcessEnv, terminalOf = ownTerminal): AskTrust =>
  async (reading, confirmed) => {
    const refusal = notTrusted(reading, confirmed);
    const terminal = terminalOf();
    if (!isTerminal(terminal)) throw refusal;
    terminal.output.write(`${textOf(reading, confirmed)}\n\n`);
    if (!(await isAnsweredYes(terminal, 'Use this configuration? [y/N] '))) throw refusal;
    confirm(reading, env);
  };

export const isTerminal = ({ input, output }: Terminal): boolean => input.isTTY === true && output.isTTY === true;

export const textOf = ({ location, parts }: Reading, confirmed: ReadonlySet<string> | undefined): string =>
  trustText({ file: location.file, uid: location.uid, ownUid: ownUid(), confirmed, parts });

export const confirm = ({ location, parts }: Reading, env: NodeJS.ProcessEnv): void =>
  trustStoreOf(env).confirm(location, [...new Set(parts.map(({ digest }) => digest))], systemClock.date());

/** The terminal is not in raw mode, so Ctrl-C stays a signal. */
export function isAnsweredYes({ input, output }: Terminal, question: string): Promise<boolean> {
  output.write(question);
  const lines = createInterface({ input, terminal: false });
  return new Promise((resolve) => {
    lines.once('line', (line) => {
      resolve(/^\s*y(?:es)?\s*$/i.test(line));
      lines.close();
    });
    lines.once('close', () => resolve(false));
  });
}

export function notTrusted({ location, parts }: Reading, confirmed: ReadonlySet<string> | undefined): HostError {
  const open = parts.filter(({ digest }) => !confirmed?.has(digest)).map(({ at }) => pathOf(at));
  const what =
    confirmed === undefined
      ? 'was never confirmed on this machine'
      : `changed since it was confirmed: ${partsText(open)}`;
  const owner = isForeign(location.uid, ownUid()) ? `; its owner is ${ownerText(location.uid, ownUid())}` : '';
  return new HostError('denied', `the configuration ${neutraliseLine(location.file, pathChars)} ${what}${owner}`, {
    reason: 'not_trusted',
    field: '--config',
    execution: 'not_executed',
    hint: 'run hostler trust in that folder to review and confirm it, or name the file with --config',
  });
}
