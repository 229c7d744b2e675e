/**
 * The block at the bottom of the terminal of `hostler up`: the servers while their tools are read, then a summary. The block is redrawn
 * when it changes, and log lines are printed above it.
 * Not here: the text (output/first-screen.ts), moving the cursor (output/live-block.ts).
 * Invariant: before `begin` and after `end`, lines go to stderr unchanged.
 */
import type { StatusRow } from '../../host/status.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { isLearning, upBlock } from '../output/first-screen.js';
import { LiveBlock } from '../output/live-block.js';
import { writeStderr } from '../output/stderr-log.js';
import { paint, screenOf } from '../output/styled.js';

type Output = ConstructorParameters<typeof LiveBlock>[0];

const learningMs = 200;
const quietMs = 1_000;

export class UpScreen {
  readonly #clock: Clock;
  readonly #output: Output;
  readonly #writeLine: (text: string) => void;
  #block: LiveBlock | undefined;
  #shown = '';
  #cancel: Cancel | undefined;

  constructor(clock: Clock, output: Output = process.stderr, writeLine = writeStderr) {
    this.#clock = clock;
    this.#output = output;
    this.#writeLine = writeLine;
  }

  begin(rows: () => readonly StatusRow[]): void {
    this.#block = new LiveBlock(this.#output);
    this.#draw(rows);
  }

  readonly write = (text: string): void => {
    if (this.#block) this.#block.above(() => this.#writeLine(text));
    else this.#writeLine(text);
  };

  /** Removes the block. */
  end(): void {
    this.#cancel?.();
    this.#block?.draw([]);
    this.#block = undefined;
  }

  #draw(rowsOf: () => readonly StatusRow[]): void {
    const rows = rowsOf();
    const screen = screenOf(this.#output);
    const block = upBlock({ rows, screen });
    const text = block
      .flat()
      .map((line) => paint(line, screen))
      .join('\n');
    if (text !== this.#shown) this.#block?.draw(...block);
    this.#shown = text;
    const waitMs = rows.some(isLearning) ? learningMs : quietMs;
    this.#cancel = this.#clock.at(this.#clock.nowMs() + waitMs, () => this.#draw(rowsOf));
  }
}
