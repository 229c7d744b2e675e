/** An explanation as text for a person. */
import type { CallForecast, Explanation } from '../host/explain.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { stateWord } from './status-table.js';
import { span } from './text-table.js';

const lineChars = 400;
const hashChars = 19;

export function whyText(explained: Explanation): string {
  const { server, tool, principal, visible, rule, state, breaker, cache, budget, pin, call } = explained;
  const rows: (readonly [string, string])[] = [
    [
      tool === undefined ? server : `${server}/${tool}`,
      principal.role === undefined ? 'for the operator' : `for role ${principal.role}`,
    ],
    [visible ? 'visible' : 'hidden', rule],
    ['state', `${stateWord(state.state)} for ${span(state.forMs)}, since ${state.since}${nextTry(state)}`],
    ...(state.lastError
      ? [
          [
            'last error',
            `${state.lastError.message} [${state.lastError.code}], ${span(state.lastError.agoMs)} ago`,
          ] as const,
        ]
      : []),
    [
      'breaker',
      `${breaker.circuit}, ${breaker.failures} of ${breaker.threshold} failures${breaker.retryAfterMs === undefined ? '' : `, next try in ${span(breaker.retryAfterMs)}`}`,
    ],
    ['cache', cache.policy === 'off' ? 'off' : `on, ${cache.entries} answers kept`],
    [
      'budget',
      budget === undefined
        ? 'no ceiling'
        : `${budget.left} of ${budget.calls} calls left in ${span(budget.windowMs)}${budget.resetsInMs === undefined ? '' : `, anew in ${span(budget.resetsInMs)}`}`,
    ],
    ...(pin ? [['pin', pinText(pin)] as const] : []),
    ['a call now', forecastText(call)],
  ];
  const width = Math.max(...rows.map(([label]) => Math.min(label.length, 40)));
  return rows
    .map(([label, text]) => `${neutraliseLine(label, 100).padEnd(width)}  ${neutraliseLine(text, lineChars)}`)
    .join('\n');
}

const nextTry = ({ nextProbeInMs }: Explanation['state']): string =>
  nextProbeInMs === undefined ? '' : `; next try in ${span(nextProbeInMs)}`;

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
    case 'refused': {
      const when = call.retryAfterMs === undefined ? '' : `; again in ${span(call.retryAfterMs)}`;
      return `is refused: ${call.reason} [${call.code}]${when}${call.hint === undefined ? '' : ` — ${call.hint}`}`;
    }
    default:
      return call satisfies never;
  }
}
