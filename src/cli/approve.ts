/**
 * `hostler approve`: shows tools that differ from their approved version, field by field, and approves the version that was
 * shown. Without a terminal each version is named by its hash.
 * Not here: the comparison (policy/pin-review.ts), the approval itself (host/approvals.ts).
 */
import { readTarget } from '../config/server-name.js';
import { quoted } from '../kernel/shell-word.js';
import { neutraliseLine, showUnseen } from '../kernel/terminal-text.js';
import type { PinReview } from '../policy/pin-review.js';
import { type Command, hostOptions, jsonOption, type ParsedArgs, usageError } from './command.js';
import type { ControlClient } from './control/control-client.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printLines } from './output/print.js';
import { type Line, span } from './output/styled.js';
import { isAnsweredYes, isTerminal } from './trust/ask-trust.js';

const valueChars = 400;
const fieldsMax = 40;
/** `changeChars`: shown characters of a changed value. `contextChars`: of these, the equal text before the change. */
const changeChars = 900;
const contextChars = 40;

interface Approved {
  readonly server: string;
  readonly tool: string;
  readonly hash: string;
}

export const approve: Command = {
  name: 'approve',
  usage: '[SERVER[/TOOL]] [--all] [--yes] [--hash TOOL=sha256:...]... [--undo] [--json]',
  example: 'approve github',
  options: {
    all: 'ask once for all tools that are shown',
    yes: 'do not ask; needs a --hash for each tool',
    'hash=*': '[SERVER/]TOOL=sha256:..., a version to approve',
    undo: 'take the newest approval back',
    ...jsonOption,
    ...hostOptions,
  },
  positionals: [0, 1],
  run: (args) =>
    withControlClient(args, 'refuse', async (client) => {
      if (args.has('undo')) return undo(client, args);
      const [about] = args.positionals;
      const waiting: PinReview[] = [];
      const found = await client.request('pins', { about }, (review) => waiting.push(review as PinReview));
      const { server } = found as { readonly server?: string };
      if (args.has('yes') || args.all('hash').length > 0) return approveHashes(client, args, server, waiting);
      if (args.has('json')) {
        printJson({ waiting });
        return EXIT.done;
      }
      printLines(waiting.length === 0 ? ['no tool waits for approval'] : waiting.flatMap(reviewLines));
      return waiting.length === 0 ? EXIT.done : ask(client, args, waiting);
    }),
};

async function undo(client: ControlClient, args: ParsedArgs): Promise<number> {
  const undone = (await client.request('unapprove')) as { readonly server: string; readonly tool: string };
  if (args.has('json')) printJson({ undone });
  else printLines([`${undone.server}/${undone.tool}: the approval is taken back`]);
  return EXIT.done;
}

/** Approves exactly the versions that the caller names, never those that happen to be listed. */
async function approveHashes(
  client: ControlClient,
  args: ParsedArgs,
  server: string | undefined,
  waiting: readonly PinReview[],
): Promise<number> {
  const hashes = args.all('hash').map((text) => hashOption(text, server, waiting));
  if (!args.has('yes')) throw usageError(approve, '--hash needs --yes');
  if (hashes.length === 0) throw usageError(approve, '--yes needs a --hash for each tool', hashHint(waiting));
  const approved: Approved[] = [];
  // An unknown or outdated hash ends the command; earlier approvals stay in effect.
  for (const each of hashes) {
    await client.request('approve', { ...each });
    approved.push(each);
  }
  const left = waiting.filter((review) => !hashes.some((each) => isSame(each, review)));
  if (args.has('json')) printJson({ approved, waiting: left });
  else {
    const still = left.length === 0 ? [] : [`${left.length} still wait for approval`];
    printLines([...approved.map((each) => `${each.server}/${each.tool}: approved`), ...still]);
  }
  return EXIT.done;
}

function hashOption(text: string, server: string | undefined, waiting: readonly PinReview[]): Approved {
  const [, subject = '', hash = ''] = /^(.+)=(sha256:[0-9a-f]{64})$/.exec(text) ?? [];
  if (hash === '') throw usageError(approve, `'${text.slice(0, 100)}' is not TOOL=sha256:<64 hex digits>`);
  const named = readTarget([], subject);
  const known = waiting.filter((review) => review.tool === subject);
  if (server !== undefined && !(named.server === server && named.tool !== undefined))
    return { server, tool: subject, hash };
  if (named.tool !== undefined) return { server: named.server, tool: named.tool, hash };
  const [only] = known;
  if (only && known.length === 1) return { server: only.server, tool: subject, hash };
  throw usageError(approve, `'${subject.slice(0, 100)}' does not name one tool; write SERVER/TOOL=sha256:...`);
}

const isSame = (a: Pick<Approved, 'server' | 'tool'>, b: Pick<Approved, 'server' | 'tool'>): boolean =>
  a.server === b.server && a.tool === b.tool;

export const hashHint = (waiting: readonly PinReview[]): string => {
  const named = waiting.flatMap(({ server, tool, hash }) => (hash ? [`${server}/${tool}=${hash}`] : []));
  const shown = named.slice(0, 3).map((text) => `--hash ${quoted(neutraliseLine(text, valueChars))}`);
  return `look at the tools first, then name each version: hostler approve --yes ${shown.join(' ')}${named.length > 3 ? ' ...' : ''}`;
};

async function ask(client: ControlClient, args: ParsedArgs, waiting: readonly PinReview[]): Promise<number> {
  const terminal = { input: process.stdin, output: process.stderr };
  if (!isTerminal(terminal)) throw usageError(approve, 'without a terminal nothing is approved', hashHint(waiting));
  const all = waiting.filter((review) => review.hash !== undefined && !isPartlyHidden(review));
  if (all.length === 0) return EXIT.done;
  if (args.has('all') && !(await isAnsweredYes(terminal, `approve all ${all.length} tools? [y/N] `))) return EXIT.done;
  for (const { server, tool, hash } of all) {
    const name = neutraliseLine(`${server}/${tool}`, valueChars);
    if (!args.has('all') && !(await isAnsweredYes(terminal, `approve ${name}? [y/N] `))) continue;
    await client.request('approve', { server, tool, hash });
    printLines([`${name}: approved`]);
  }
  return EXIT.done;
}

const shownText = (text: string): string => {
  const shown = showUnseen(text);
  return shown.length > valueChars ? `${shown.slice(0, valueChars)}…` : shown;
};

interface ShownChange {
  readonly before: string | undefined;
  readonly after: string | undefined;
  readonly isHidden: boolean;
}

/** Long texts are cut around their first difference. `isHidden`: a part that differs is not shown. */
function shownChange({ before, after }: PinReview['changes'][number]): ShownChange {
  const [old, now] = [showUnseen(before ?? ''), showUnseen(after ?? '')];
  const shorter = Math.min(old.length, now.length);
  let same = 0;
  while (same < shorter && old[same] === now[same]) same++;
  let sameEnd = 0;
  while (sameEnd < shorter - same && old.at(-1 - sameEnd) === now.at(-1 - sameEnd)) sameEnd++;
  const start = Math.max(0, same - contextChars);
  const cut = (text: string): string => {
    if (text.length <= changeChars) return text;
    const shown = text.slice(start, start + changeChars);
    const more = text.length - shown.length;
    return `${start > 0 ? '…' : ''}${shown}… [${more} characters hidden]`;
  };
  const isHidden = [old, now].some((text) => text.length > changeChars && text.length - sameEnd > start + changeChars);
  return { before: before && cut(old), after: after && cut(now), isHidden: isHidden || isCut(before) || isCut(after) };
}

/** The control socket ends a text with `…` if it had to cut it to fit one frame. JSON never ends with this character. */
const isCut = (json: string | undefined): boolean => json?.endsWith('…') === true;

/** The first fields, the description, and all fields with something that a reader may overlook. */
const shownFields = (changes: PinReview['changes']): PinReview['changes'] =>
  changes.filter(
    ({ field, invisible, imperatives }, i) =>
      i < fieldsMax || field === 'description' || invisible.length > 0 || imperatives.length > 0,
  );

/** True if not all changes are shown. A simple yes does not approve such a tool. */
export const isPartlyHidden = ({ changes }: PinReview): boolean =>
  shownFields(changes).length < changes.length || changes.some((change) => shownChange(change).isHidden);

const statusTexts: Readonly<Partial<Record<PinReview['status'], string>>> = {
  reworded: 'new wording; calls pass, and clients see the approved text',
};

export function reviewLines(review: PinReview): Line[] {
  const { server, tool, status, blocks, hash, renamedFrom, changes } = review;
  const what = renamedFrom === undefined ? (statusTexts[status] ?? status) : `renamed from ${shownText(renamedFrom)}`;
  const effect = blocks ? '; calls are blocked' : '';
  const lines: Line[] = [[span('name', shownText(`${server}/${tool}`)), `  ${what}${effect}`]];
  if (hash === undefined) return [...lines, '  its definition is ambiguous or too large, so it cannot be approved', ''];
  const fields = shownFields(changes);
  for (const change of fields) {
    const { field, invisible, imperatives } = change;
    const { before, after } = shownChange(change);
    lines.push(`  ${shownText(field)}`);
    if (before !== undefined) lines.push(span('bad', `    - ${before}`));
    if (after !== undefined) lines.push(span('good', `    + ${after}`));
    if (invisible.length > 0) lines.push(span('bad', `    ! invisible characters: ${invisible.join(' ')}`));
    for (const sentence of imperatives)
      lines.push(span('bad', `    ! tells the model what to do: ${shownText(sentence)}`));
  }
  if (changes.length > fields.length) lines.push(`  and ${changes.length - fields.length} more fields`);
  if (changes.some(({ before, after }) => isCut(before) || isCut(after)))
    lines.push(span('bad', '  the tool is too large to be shown whole, even with --json'));
  if (isPartlyHidden(review))
    lines.push(span('bad', '  not all changes are shown: read them with --json, then approve with --yes --hash'));
  return [...lines, span('dim', `  ${hash}`), ''];
}
