/**
 * Stores the last bytes that a server wrote to stderr and when they arrived, for logs, errors and status pages, and finds the
 * line that explains its exit.
 * Not here: redaction and removal of terminal codes (the `redact` argument).
 * Invariants: `push` copies the bytes and does not inspect them, so a server that floods stderr cannot slow its calls. An
 * incomplete last line is shown only after `end`: the rest of a secret may still follow, and redaction does not recognise a part.
 */
const NEWLINE = 0x0a;
/** Last bytes that are searched for the cause of an exit: enough for a stack trace and the lines before it. */
const crashBytes = 16 * 1024;
/** Bound of stored arrival times. Beyond it every second one is dropped, and its bytes get the time of the previous chunk. */
const arrivalsMax = 1_000;

export interface StderrLine {
  readonly text: string;
  /** Wall time at which its first byte arrived. */
  readonly atMs: number;
}

interface Arrival {
  /** Number of bytes that were written before. */
  readonly from: number;
  readonly atMs: number;
}

export class StderrRing {
  readonly #capacity: number;
  readonly #redact: (text: string) => string;
  readonly #wallMs: () => number;
  #arrivals: Arrival[] = [];
  /** Allocated with the first byte, because most servers write nothing. Unused pages cost no memory. */
  #ring: Buffer | undefined;
  #next = 0;
  /** Number of bytes ever written, including overwritten ones. */
  #total = 0;
  #isEnded = false;

  constructor(capacity: number, redact: (text: string) => string, wallMs: () => number) {
    this.#capacity = capacity;
    this.#redact = redact;
    this.#wallMs = wallMs;
  }

  push(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#ring ??= Buffer.allocUnsafeSlow(this.#capacity);
    this.#stamp();
    this.#total += chunk.length;
    const from = Math.max(0, chunk.length - this.#capacity);
    const first = chunk.copy(this.#ring, this.#next, from);
    const second = from + first < chunk.length ? chunk.copy(this.#ring, 0, from + first) : 0;
    this.#next = second > 0 ? second : (this.#next + first) % this.#capacity;
  }

  /** The process has ended, so nothing follows. Its last line often has no newline. */
  end(): void {
    this.#isEnded = true;
  }

  /** Returns the lines in the last `maxBytes`, redacted. */
  tail(maxBytes?: number): string {
    return this.#redact(this.#last(maxBytes).bytes.toString('utf8'));
  }

  /** The lines of `tail`. */
  lines(maxBytes?: number): readonly StderrLine[] {
    const { bytes, from } = this.#last(maxBytes);
    const times = this.#timesOf(bytes, from);
    const texts = this.#redact(bytes.toString('utf8')).split('\n');
    if (texts.at(-1) === '') texts.pop();
    if (bytes.at(-1) === NEWLINE) times.pop();
    // A secret of several lines is redacted to one line, so there may be fewer lines than times. The last times belong to the
    // last lines.
    const fewer = times.length - texts.length;
    return texts.map((text, at) => ({ text, atMs: times[Math.max(0, at + fewer)] ?? 0 }));
  }

  crashLine(maxChars: number): string {
    return crashLine(this.tail(crashBytes), maxChars);
  }

  #stamp(): void {
    const atMs = this.#wallMs();
    if (this.#arrivals.at(-1)?.atMs === atMs) return;
    this.#arrivals.push({ from: this.#total, atMs });
    if (this.#arrivals.length <= arrivalsMax) return;
    const oldest = this.#arrivals.findLastIndex(({ from }) => from <= this.#total - this.#capacity);
    const stored = this.#arrivals.slice(Math.max(0, oldest));
    const isFull = stored.length > arrivalsMax / 2;
    this.#arrivals = isFull ? stored.filter((_, at) => at % 2 === 0 || at === stored.length - 1) : stored;
  }

  /** Times at which the first byte of each line arrived. */
  #timesOf(bytes: Buffer, from: number): number[] {
    const times: number[] = [];
    let arrival = 0;
    for (let start = 0; start >= 0; ) {
      while ((this.#arrivals[arrival + 1]?.from ?? Number.POSITIVE_INFINITY) <= from + start) arrival++;
      times.push(this.#arrivals[arrival]?.atMs ?? 0);
      const newline = bytes.indexOf(NEWLINE, start);
      start = newline < 0 ? -1 : newline + 1;
    }
    return times;
  }

  /** At most the last `maxBytes`, without partial lines; `from`: number of bytes that were written before. */
  #last(maxBytes: number = this.#capacity): { readonly bytes: Buffer; readonly from: number } {
    const ring = this.#ring;
    if (!ring) return { bytes: Buffer.alloc(0), from: 0 };
    const length = Math.min(maxBytes, this.#total, this.#capacity);
    const first = (this.#next - length + this.#capacity) % this.#capacity;
    const bytes =
      first + length <= this.#capacity
        ? ring.subarray(first, first + length)
        : Buffer.concat([ring.subarray(first), ring.subarray(0, this.#next)], length);
    const newline = bytes.indexOf(NEWLINE);
    const start = length === this.#total ? 0 : newline < 0 ? bytes.length : newline + 1;
    const end = this.#isEnded ? bytes.length : bytes.lastIndexOf(NEWLINE) + 1;
    return { bytes: bytes.subarray(start, Math.max(start, end)), from: this.#total - length + start };
  }
}

/**
 * Finds the line of stderr that explains the exit of a program. For Node, Deno, Bun, Java, Python, Go and Rust this is the
 * error with a stack line; for other programs the last meaningful line.
 * Invariant: an earlier error that is followed by other lines is not reported as the reason.
 */

/** Lines that a runtime or a package runner writes after the error. */
const noise: readonly RegExp[] = [
  /^\s*$/,
  /^\s*\^+\s*$/,
  /^(?:Node\.js|Bun) v\d/,
  /^\(Use `node --trace-/,
  /^note: /,
  /^exit status \d+$/,
  /^npm (?:error|ERR!) A complete log of this run/,
  /^npm (?:error|ERR!)(?: \d+)?$/,
];

/** Maximum number of lines of a message, and of the error properties that Node prints. */
const messageLinesMax = 20;
const propertyLinesMax = 80;

type Find = (lines: readonly string[], last: number) => string | undefined;

export function crashLine(text: string, maxChars: number): string {
  const lines = text.split('\n').map((line) => line.trimEnd());
  const last = lines.findLastIndex((line) => !noise.some((pattern) => pattern.test(line)));
  if (last < 0) return '';
  let found: string | undefined;
  for (const find of [rustCrash, goCrash, pythonCrash, scriptCrash]) found ??= find(lines, last);
  const line = found ?? at(lines, last).trim();
  return line.length > maxChars ? `${line.slice(0, maxChars)}…` : line;
}

const at = (lines: readonly string[], index: number): string => lines[index] ?? '';

const lastMatch = (lines: readonly string[], last: number, pattern: RegExp): number =>
  lines.slice(0, last + 1).findLastIndex((line) => pattern.test(line));

const rustAside = /^\s|^$|^note: |^stack backtrace:/;

const rustCrash: Find = (lines, last) => {
  const head = lastMatch(lines, last, /^thread '.*'.* panicked at /);
  if (head < 0) return undefined;
  const aside = lines.findIndex((line, i) => i > head && /^(?:note: |stack backtrace:)/.test(line));
  const messageEnd = aside < 0 ? last : Math.min(aside - 1, last);
  const isOver = aside < 0 || lines.slice(aside, last + 1).every((line) => rustAside.test(line));
  if (!isOver || messageEnd - head > messageLinesMax) return undefined;
  const message = at(lines, head).endsWith(':') && messageEnd > head ? ` ${at(lines, head + 1).trim()}` : '';
  return `${at(lines, head)}${message}`;
};

const goAside =
  /^$|^\t|^\s+panic: |^goroutine |^created by |^runtime stack:|^\[signal |^exit status |^\.\.\.|^[\w./*()[\]{}·$<>,-]+\(.*\)$|^[a-z]\w{1,5}\s+0x[0-9a-f]+$/;

const goCrash: Find = (lines, last) => {
  const head = lastMatch(lines, last, /^(?:panic|fatal error): /);
  if (head < 0 || !lines.slice(head + 1, last + 1).every((line) => goAside.test(line))) return undefined;
  const stack = lines.findIndex((line, i) => i > head && /^goroutine \d+ .*:$/.test(line));
  const frame = stack < 0 ? -1 : lines.findIndex((line, i) => i > stack && /^(?!panic\(|runtime\.)\S+\(/.test(line));
  if (frame < 0) return at(lines, head);
  const place = at(lines, frame + 1)
    .trim()
    .replace(/ \+0x[0-9a-f]+$/, '');
  return `${at(lines, head)} at ${at(lines, frame)} ${place}`.trim();
};

const pythonFrame = /^\s+File ".*", line \d+/;
const logRecord = /^\s*\[?(?:\d{4}-\d\d-\d\d|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b)/;

const pythonCrash: Find = (lines, last) => {
  const start = lastMatch(lines, last, /^Traceback \(most recent call last\):$/);
  // A syntax error has one frame and no `Traceback` line.
  const frames = start >= 0 ? start + 1 : lastMatch(lines, last - 1, pythonFrame);
  if (frames < 0) return undefined;
  const head = lines.findIndex((line, i) => i > frames && !line.startsWith(' '));
  if (head < 0 || head > last || last - head > messageLinesMax || !/^[\w.]+(?::|$)/.test(at(lines, head)))
    return undefined;
  const rest = lines.slice(head + 1, last + 1);
  if (rest.some((line) => logRecord.test(line))) return undefined;
  const place = lines.slice(frames, head).findLast((line) => pythonFrame.test(line));
  const message = [at(lines, head), ...rest.slice(0, 2)].map((line) => line.trim()).join(' ');
  return place === undefined ? message : `${message} (${place.trim()})`;
};

const scriptFrame = /^\s+at\s/;
const elided = /^\s+\.\.\. \d+ /;
const namedError = /\b(?:Error|Exception|Rejection)\b|[a-z](?:Error|Exception|Rejection)\b/;

/** JavaScript and Java: an error, then `at` lines. Node prints other properties of the error in braces after them. */
const scriptCrash: Find = (lines, last) => {
  const end = at(lines, last) === '}' ? propertiesStart(lines, last) : last;
  if (end < 0) return undefined;
  if (!scriptFrame.test(at(lines, end))) return end === last ? undefined : withoutBrace(at(lines, end));
  let first = end;
  while (first > 0 && (scriptFrame.test(at(lines, first - 1)) || elided.test(at(lines, first - 1)))) first--;
  const head = headOf(lines, first);
  if (head === undefined) return undefined;
  const frames = lines.slice(first, end + 1);
  const place = frames.find((line) => !line.includes('node:internal/')) ?? at(lines, first);
  return `${head} ${withoutBrace(place)}`;
};

const propertiesStart = (lines: readonly string[], last: number): number => {
  const opens = (line: string) => line.endsWith('{') && (scriptFrame.test(line) || namedError.test(line));
  const found = lines.slice(0, last).findLastIndex(opens);
  return last - found > propertyLinesMax ? -1 : found;
};

const withoutBrace = (line: string): string => line.trim().replace(/ \{$/, '');

/** A message may have several lines. The first one names the error. */
function headOf(lines: readonly string[], firstFrame: number): string | undefined {
  for (let i = firstFrame - 1; i >= Math.max(0, firstFrame - messageLinesMax); i--) {
    if (at(lines, i) === '') break;
    if (namedError.test(at(lines, i))) return at(lines, i).trim();
  }
  return at(lines, firstFrame - 1).trim() || undefined;
}
