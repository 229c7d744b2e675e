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

export function logLine(level: LogLevel, text: string, options: LogOptions = {}): void {
  const { redact = (shown) => shown, write = writeStderr } = options;
  const clean = neutraliseLine(redact(text), LIMITS.quotedChars);
  write(`${systemClock.date().toISOString()} ${level.padEnd(levelChars)} ${clean}\n`);
}

interface LogOptions {
  readonly redact?: (text: string) => string;
  /** Gets whole lines. Default: writes them to stderr. */
  readonly write?: ((text: string) => void) | undefined;
}

export function writeStderr(text: string): void {
  if (process.stderr.writableLength <= unreadBytesMax) process.stderr.write(text);
}

/** Drops lines below `level`, which an edit of the configuration may change. */
export class LevelLog {
  level: LogLevel = 'info';
  readonly #options: LogOptions;

  constructor(options: LogOptions = {}) {
    this.#options = options;
  }

  readonly write = (level: LogLevel, text: string): void => {
    if (logLevels.indexOf(level) <= logLevels.indexOf(this.level)) logLine(level, text, this.#options);
  };
}
