/** The log levels of the protocol. Not here: the level of each client (listening/log-levels.ts). */
import { memberString } from '../../wire/json-members.js';

/** The levels of RFC 5424, lowest first. */
export const logLevels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const;
export type LogLevel = (typeof logLevels)[number];

export const isLogLevel = (text: string | undefined): text is LogLevel =>
  (logLevels as readonly (string | undefined)[]).includes(text);

/** Undefined `level`: the client gets all logs. A log without a valid level is dropped for any other client. */
export function isLogged(level: LogLevel | undefined, params: Buffer | undefined): boolean {
  if (level === undefined) return true;
  const own = params && memberString(params, 'level');
  return isLogLevel(own) && !isMoreVerbose(own, level);
}

export const isMoreVerbose = (level: LogLevel, than: LogLevel): boolean =>
  logLevels.indexOf(level) < logLevels.indexOf(than);
