/**
 * The log of a command that goes on: one line for each thing, with its time and how much it matters, to stderr.
 * Not here: what is worth a line (event-line.ts, broker-words.ts).
 *
 * Invariant: a line stays one line, and what nobody reads does not fill our memory.
 */
import { type LogLevel, logLevels } from '../config/listen-settings.js';
import { systemClock } from '../kernel/clock.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';

const unreadBytesMax = 1024 * 1024;
const levelChars = 5;

/** `redact` takes out what must not be shown. */
export function logLine(level: LogLevel, text: string, redact: (text: string) => string = (shown) => shown): void {
  if (process.stderr.writableLength > unreadBytesMax) return;
  const clean = neutraliseLine(redact(text), LIMITS.quotedChars);
  process.stderr.write(`${systemClock.date().toISOString()} ${level.padEnd(levelChars)} ${clean}\n`);
}

/** What matters less than the level does not get a line. The level may change while it is used. */
export class LevelLog {
  level: LogLevel = 'info';
  readonly #redact: ((text: string) => string) | undefined;

  constructor(redact?: (text: string) => string) {
    this.#redact = redact;
  }

  readonly say = (level: LogLevel, text: string): void => {
    if (logLevels.indexOf(level) <= logLevels.indexOf(this.level)) logLine(level, text, this.#redact);
  };
}
