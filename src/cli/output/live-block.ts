/**
 * Lines at the end of a terminal that are drawn again in place.
 * Invariant: the block is never higher or wider than the terminal, so that moving up by its height finds its first line.
 */
import { clip, type Line, paint, screenOf, span } from './styled.js';

type Output = Pick<NodeJS.WriteStream, 'write' | 'isTTY' | 'columns' | 'rows'>;

/** Some terminals report 0 rows. */
const rowsDefault = 24;

/** False for pipes, for CI and for terminals that cannot move the cursor. */
export const isRedrawn = ({ isTTY }: Pick<Output, 'isTTY'>, env: NodeJS.ProcessEnv = process.env): boolean =>
  isTTY && env.TERM !== 'dumb' && !env.CI;

export class LiveBlock {
  readonly #output: Output;
  #lines: readonly Line[] = [];
  #foot: readonly Line[] = [];
  #height = 0;

  constructor(output: Output) {
    this.#output = output;
  }

  /** `foot` is always shown; `lines` are cut if both together are higher than the terminal. */
  draw(lines: readonly Line[], foot: readonly Line[] = []): void {
    const rowsMax = Math.max(2, (this.#output.rows || rowsDefault) - 1);
    const screen = screenOf(this.#output);
    const shown = [...cutTo(Math.max(1, rowsMax - foot.length), lines), ...foot].slice(0, rowsMax);
    const text = shown.map((line) => `${paint(clip(line, screen), screen)}\n`).join('');
    this.#output.write(`${this.#erase()}${text}`);
    this.#lines = lines;
    this.#foot = foot;
    this.#height = shown.length;
  }

  /** Runs `write`, and redraws the block below the lines that it printed. */
  above(write: () => void): void {
    if (this.#height === 0) return write();
    this.#output.write(this.#erase());
    this.#height = 0;
    write();
    this.draw(this.#lines, this.#foot);
  }

  /** Leaves the last lines on the terminal. They are not drawn again. */
  end(): void {
    this.#height = 0;
    this.#lines = [];
    this.#foot = [];
  }

  #erase(): string {
    return this.#height === 0 ? '' : `\u001b[${this.#height}A\r\u001b[J`;
  }
}

const cutTo = (max: number, lines: readonly Line[]): readonly Line[] =>
  lines.length <= max ? lines : [...lines.slice(0, max - 1), span('dim', `… and ${lines.length - max + 1} more`)];
