/** `hostler why`: explains which rule allows or denies a tool, and the outcome of a call now. */

import type { CallForecast, Explanation } from '../host/explain.js';
import { keyTexts } from '../identity/identity-place.js';
import { formatDuration } from '../kernel/duration.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, hostOptions, jsonOption } from './command.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printLines } from './output/print.js';
import { stateSpan } from './output/states.js';
import { flow, type Line, type Screen, screenOf } from './output/styled.js';

const labelChars = 100;
const lineChars = 400;
const hashChars = 19;
const gap = 2;

export const why: Command = {
  name: 'why',
  usage: 'SERVER[/TOOL] [--role R] [--json]',
  example: 'why memory/read_graph --role reader',
  options: { 'role=': 'explain for this role; without it, for the operator', ...jsonOption, ...hostOptions },
  positionals: [1, 1],
  run(args) {
    const [target = ''] = args.positionals;
    return withControlClient(args, 'show', async (client) => {
      // JSON omits undefined members.
      const explained = (await client.request('why', { target, role: args.text('role') })) as Explanation;
      if (args.has('json')) printJson(explained);
      else printLines(render(explained, screenOf(process.stdout)));
      return EXIT.done;
    });
  },
};

function render(explained: Explanation, screen: Screen): Line[] {
  const { server, tool, shownAs, principal, visible, rule, state, auth, breaker, cache, budget, pin, repair, call } =
    explained;
  const subject = tool === undefined ? server : `${server}/${tool}`;
  const rows: (readonly [string, string])[] = [
    [subject, principal.role === undefined ? 'for the operator' : `for role ${principal.role}`],
    ['clients see', shownAs ?? ''],
    [visible ? 'visible' : 'hidden', rule],
    [
      'state',
      `${stateSpan(state).text} for ${formatDuration(state.forMs)}, since ${state.since}${inSpan('; next try', state.nextProbeInMs)}`,
    ],
    ['last error', state.lastError ? errorText(state.lastError) : ''],
    ['tools', state.toolsError ?? ''],
    ...authRows(auth),
    [
      'breaker',
      `${breaker.circuit}, ${breaker.failures} of ${breaker.threshold} failures${inSpan(', next try', breaker.retryAfterMs)}`,
    ],
    ['cache', cache.policy === 'off' ? 'off' : `on, ${cache.entries} entries`],
    ['budget', budget === undefined ? 'unlimited' : budgetText(budget)],
    ['pin', pin ? pinText(pin) : ''],
    ['repair', repair ? `${repair.isLeftOut ? 'not possible' : 'done in lists'}: ${repair.fields.join(', ')}` : ''],
    ['a call now', forecastText(call)],
  ];
  const shown = rows.filter(([, text]) => text !== '');
  const width = Math.max(...shown.map(([label]) => Math.min(label.length, 40)));
  return shown.flatMap(([label, text]) => {
    const line = `${neutraliseLine(label, labelChars).padEnd(width + gap)}${neutraliseLine(text, lineChars)}`;
    return flow(line, screen, width + gap);
  });
}

/** The chain from the metadata of the server to the last answer of its authorization server. */
function authRows(auth: Explanation['auth']): (readonly [string, string])[] {
  if (!auth) return [];
  const { state, identity, issuer, resourceMetadata, registration, clientId, scopes, wanted, lastError } = auth;
  return [
    [
      'login',
      `${state}${identity === undefined ? '' : ` as ${identity}`}${auth.next === undefined ? '' : `; ${auth.next}`}`,
    ],
    ['resource', auth.resource === undefined ? '' : `${auth.resource}, metadata ${resourceMetadata ?? 'not found'}`],
    ['issuer', issuer === undefined ? '' : `${issuer}, client ${clientId} (${registration})`],
    ['scopes', scopes ? `${scopes.join(' ') || 'none'}${wanted ? `; wanted: ${wanted.join(' ')}` : ''}` : ''],
    [
      'token',
      auth.expiresAt === undefined ? '' : `ends ${auth.expiresAt}, refresh ${auth.refreshAt ?? 'at a 401 only'}`,
    ],
    ['sealed with', issuer !== undefined && auth.store ? keyTexts[auth.store] : ''],
    ['last answer', lastError ? `${lastError.reason} at ${lastError.at}` : ''],
  ];
}

const inSpan = (what: string, ms: number | undefined): string =>
  ms === undefined ? '' : `${what} in ${formatDuration(ms)}`;

const errorText = ({ message, code, agoMs }: NonNullable<Explanation['state']['lastError']>): string =>
  `${message} [${code}], ${formatDuration(agoMs)} ago`;

const budgetText = ({ left, calls, windowMs, resetsInMs }: NonNullable<Explanation['budget']>): string =>
  `${left} of ${calls} calls left in ${formatDuration(windowMs)}${inSpan(', resets', resetsInMs)}`;

function pinText({ status, approvedHash, listedHash, blocks }: NonNullable<Explanation['pin']>): string {
  const hashes = [
    approvedHash && `approved ${short(approvedHash)}`,
    listedHash && listedHash !== approvedHash && `listed ${short(listedHash)}`,
  ];
  const shown = hashes.filter(Boolean).join(', ');
  return `${status}${shown === '' ? '' : ` (${shown})`}${blocks ? '; calls are blocked' : ''}`;
}

const short = (hash: string): string => (hash.length > hashChars ? `${hash.slice(0, hashChars)}…` : hash);

function forecastText(call: CallForecast): string {
  switch (call.outcome) {
    case 'passes':
      return 'goes to the server, which runs';
    case 'starts':
      return 'starts the server';
    case 'tries':
      return 'tries to start the server, which is parked';
    case 'waits':
      return 'waits for the server, which is being started';
    case 'refused':
      return `is refused: ${call.reason} [${call.code}]${inSpan('; retry', call.retryAfterMs)}${call.hint === undefined ? '' : ` — ${call.hint}`}`;
    default:
      return call satisfies never;
  }
}
