/**
 * Formats an event of the host as one log line with its level.
 * Invariant: names and messages of servers and clients are neutralised to one line.
 */
import type { LogLevel } from '../../config/listen-settings.js';
import type { HostEvent, HostEventKind, HostEventOf } from '../../host/host-events.js';
import { formatDuration } from '../../kernel/duration.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { embedder } from '../../policy/operation.js';
import { stateText } from './states.js';

const textChars = 300;
const nameChars = 100;
const text = (value: string): string => neutraliseLine(value, textChars);
const name = (value: string | undefined): string => neutraliseLine(value ?? '', nameChars);

/** All kinds that are logged. Call records are not, because a listener for them costs time in each call. */
export const loggedKinds = [
  ...(['state', 'restart', 'parked', 'ejected', 'auth_required', 'revived', 'close_failed', 'freeze'] as const),
  ...(['breaker', 'denied', 'budget', 'throttled', 'replay', 'uncertain', 'schema', 'repaired', 'auth'] as const),
] satisfies readonly HostEventKind[];

export interface EventLine {
  readonly level: LogLevel;
  readonly text: string;
}

/** Undefined for kinds that are not logged. */
export function eventLine(event: HostEvent): EventLine | undefined {
  switch (event.kind) {
    case 'state':
      return {
        level: event.to === 'ready' ? 'info' : 'debug',
        text: `${stateText(event.from)} → ${stateText(event.to)} (run ${event.run})`,
      };
    case 'restart':
      return { level: 'warn', text: `restart in ${formatDuration(event.delayMs)}: ${text(event.reason.message)}` };
    case 'parked':
      return {
        level: event.repeats > 0 ? 'debug' : 'error',
        text: `parked: ${text(event.reason.message)}; next try in ${formatDuration(event.nextProbeAtMs - event.atMs)}`,
      };
    case 'ejected':
      return { level: 'error', text: `ejected until hostler reload: ${text(event.reason.message)}` };
    case 'auth_required':
      return { level: 'error', text: `needs a new login: ${text(event.reason.message)}` };
    case 'revived':
      return { level: 'info', text: `running again after ${formatDuration(event.afterMs)}` };
    case 'close_failed':
      return { level: 'warn', text: `could not be closed cleanly: ${text(String(event.error))}` };
    case 'freeze':
      return {
        level: 'warn',
        text: `${freezeCauses[event.cause]}; failures of servers do not count for ${formatDuration(event.forMs)}`,
      };
    case 'breaker':
      return {
        level: event.to === 'open' ? 'warn' : 'info',
        text: `breaker ${event.from} → ${event.to} (${event.failures} failures)`,
      };
    case 'denied':
      return {
        level: 'warn',
        text: `${event.action}${event.tool === undefined ? '' : ` of ${name(event.tool)}`} denied for ${principalText(event.principal)}`,
      };
    case 'budget':
      return { level: 'warn', text: `call of ${name(event.tool)} over budget for ${principalText(event.principal)}` };
    case 'throttled':
      return { level: 'info', text: `call of ${name(event.tool)} throttled for ${principalText(event.principal)}` };
    case 'replay':
      return { level: 'info', text: `call of ${name(event.tool)} sent again (${event.reason})` };
    case 'uncertain':
      return { level: 'warn', text: `call of ${name(event.tool)} may have run: its outcome is unknown` };
    case 'schema':
      return {
        level: isDifference(event.status) ? 'warn' : 'debug',
        text: `tool ${name(event.tool)} is ${event.status}${isDifference(event.status) ? `; compare and approve it: hostler approve ${name(event.server)}` : ''}`,
      };
    case 'repaired':
      return { level: 'warn', text: text(event.notes.join('; ')) };
    case 'auth':
      return authLines[event.status];
    default:
      return undefined;
  }
}

const freezeCauses: Readonly<Record<HostEventOf<'freeze'>['cause'], string>> = {
  correlated: 'many servers failed together',
  suspended: 'Hostler itself was suspended',
};

const authLines: Readonly<Record<HostEventOf<'auth'>['status'], EventLine>> = {
  needed: { level: 'info', text: 'the server refused our token' },
  recovered: { level: 'info', text: 'another token is available' },
  failed: { level: 'warn', text: 'a login is needed' },
  login: { level: 'info', text: 'logged in' },
  logout: { level: 'warn', text: 'logged out' },
  refreshed: { level: 'debug', text: 'token refreshed' },
  step_up: { level: 'warn', text: 'a call needs more scopes' },
  issuer_changed: { level: 'warn', text: 'the server names another authorization server than auth.issuer' },
  dead: { level: 'warn', text: 'the login has ended and cannot be renewed' },
};

const isDifference = (status: string): boolean => ['changed', 'renamed', 'reworded'].includes(status);

const principalText = ({ id, role }: { readonly id: string; readonly role: string | undefined }): string =>
  role === undefined ? (id === embedder.id ? 'the operator' : name(id)) : `${name(id)} (${name(role)})`;
