/**
 * Text with a meaning (`good`, `bad`, ...), and its colours and symbols on a terminal.
 * Invariant: all text is neutralised here, on one line. Text of a server therefore brings no control character to a terminal.
 */
import { styleText } from 'node:util';
import { neutralise } from '../../kernel/terminal-text.js';

const formats = { good: 'green', busy: 'yellow', bad: 'red', dim: 'dim', strong: 'bold', name: 'cyan' } as const;

export type Style = keyof typeof formats;

export interface Span {
  readonly text: string;
  readonly style: Style;
  /** Shown before the text on terminals only: scripts that read columns get the word alone. */
  readonly symbol?: string;
}

export type Piece = string | Span;
export type Line = Piece | readonly Piece[];

export interface Screen {
  /** Infinite unless the output is a terminal: a pipe gets uncut text. */
  readonly width: number;
  readonly isColoured: boolean;
  readonly hasSymbols: boolean;
}

export const plainScreen: Screen = {
  width: Number.POSITIVE_INFINITY,
  isColoured: false,
  hasSymbols: false,
};

/** `FORCE_COLOR` overrides `NO_COLOR`, `TERM=dumb` and pipes, as in Node itself. Some terminals report 0 columns. */
export function screenOf(
  { isTTY, columns }: { readonly isTTY?: boolean; readonly columns?: number },
  env: NodeJS.ProcessEnv = process.env,
): Screen {
  const hasSymbols = isTTY === true && env.TERM !== 'dumb';
  const { FORCE_COLOR: forced, NO_COLOR: refused } = env;
  const isColoured = forced ? !/^(?:0|false)$/.test(forced) : hasSymbols && !refused;
  return { width: isTTY ? columns || 80 : plainScreen.width, isColoured, hasSymbols };
}

export const span = (style: Style, text: string, symbol?: string): Span =>
  symbol === undefined ? { text, style } : { text, style, symbol };

/** The text of a piece as it is shown, without colours. */
export function textOf(piece: Piece, { hasSymbols }: Screen = plainScreen): string {
  if (typeof piece === 'string') return oneLine(piece);
  return hasSymbols && piece.symbol !== undefined ? `${piece.symbol} ${oneLine(piece.text)}` : oneLine(piece.text);
}

export const paint = (line: Line, screen: Screen): string =>
  (isPieces(line) ? line : [line])
    .map((piece) => {
      const text = textOf(piece, screen);
      if (typeof piece === 'string' || !screen.isColoured || text === '') return text;
      return styleText(formats[piece.style], text, { validateStream: false });
    })
    .join('')
    .trimEnd();

/** Cuts a line to the width of the screen. */
export function clip(line: Line, screen: Screen): Line {
  let left = screen.width;
  return (isPieces(line) ? line : [line]).map((piece) => {
    const text = cut(textOf(piece, screen), Math.max(0, left));
    left -= widthOf(text);
    return typeof piece === 'string' ? text : { style: piece.style, text };
  });
}

/**
 * Breaks a line between words to fit the screen. The following lines start with `indent` blanks. A longer word, such as a path, stays
 * whole: the terminal breaks it.
 */
export function flow(line: Line, screen: Screen, indent: number): Line[] {
  const pieces = isPieces(line) ? line : [line];
  if (pieces.reduce((sum, piece) => sum + widthOf(textOf(piece, screen)), 0) <= screen.width) return [line];
  const lines: Piece[][] = [[]];
  let left = screen.width;
  let mayBreak = false;
  for (const piece of pieces) {
    for (const word of textOf(piece, screen).split(/(?<= )(?=[^ ])/)) {
      if (mayBreak && widthOf(word.trimEnd()) > left) {
        lines.push([' '.repeat(indent)]);
        left = screen.width - indent;
        mayBreak = false;
      }
      lines.at(-1)?.push(typeof piece === 'string' ? word : { style: piece.style, text: word });
      left -= widthOf(word);
      // No break after the indentation at the start of a line.
      mayBreak = word.endsWith(' ') && (mayBreak || word.trim() !== '');
    }
  }
  return lines;
}

const isPieces = (line: Line): line is readonly Piece[] => Array.isArray(line);

const oneLine = (text: string): string => neutralise(text).replaceAll('\n', '\\n').replaceAll('\t', ' ');

const combining = /\p{Mn}|\p{Me}/u;
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/u;

/** Columns that neutralised text takes on a terminal. */
export function widthOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += columnsOf(character);
  return width;
}

const columnsOf = (character: string): number => (combining.test(character) ? 0 : wide.test(character) ? 2 : 1);

/** Cuts neutralised text to `width` columns, with an ellipsis. */
export function cut(text: string, width: number): string {
  if (text.length * 2 <= width || widthOf(text) <= width) return text;
  if (width <= 0) return '';
  let kept = '';
  let used = 1;
  for (const character of text) {
    used += columnsOf(character);
    if (used > width) break;
    kept += character;
  }
  return `${kept.trimEnd()}…`;
}

/** Breaks text between words. A word that is longer than a line has a line of its own. */
export function wrap(words: readonly string[], width: number, indent = ''): string[] {
  const lines: string[] = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && widthOf(last) + 1 + widthOf(word) <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(last === undefined ? word : `${indent}${word}`);
  }
  return lines;
}
