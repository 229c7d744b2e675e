/**
 * The log of a long-running command: lines with time and level on stderr.
 * Invariant: an entry is one line. While more than `unreadBytesMax` bytes are unread, new lines are dropped.
 */
import { type LogLevel, logLevels } from '../../config/listen-settings.js';
import { systemClock } from '../../kernel/clock.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

const unreadBytesMax = 1024 * 1024;
const levelChars = 5;

export function logLine(level: LogLevel, text: string, redact: (text: string) => string = (shown) => shown): void {
  if (process.stderr.writableLength > unreadBytesMax) return;
  const clean = neutraliseLine(redact(text), LIMITS.quotedChars);
  process.stderr.write(`${systemClock.date().toISOString()} ${level.padEnd(levelChars)} ${clean}\n`);
}

/** Drops lines below `level`, which an edit of the configuration may change. */
export class LevelLog {
  level: LogLevel = 'info';
  readonly #redact: ((text: string) => string) | undefined;

  constructor(redact?: (text: string) => string) {
    this.#redact = redact;
  }

  readonly write = (level: LogLevel, text: string): void => {
    if (logLevels.indexOf(level) <= logLevels.indexOf(this.level)) logLine(level, text, this.#redact);
  };
}
