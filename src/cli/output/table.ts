/**
 * Aligned columns that fit the screen.
 * Invariant: a row is one line of at most `screen.width` columns; what does not fit ends in an ellipsis.
 */
import { cut, type Line, type Piece, type Screen, textOf, widthOf } from './styled.js';

const gap = '  ';
/** Columns are not made narrower than this. On a narrower screen, the end of the row is cut off. */
const widthMin = 6;

export function table(rows: readonly (readonly Piece[])[], screen: Screen): Line[] {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const natural = Array.from({ length: columns }, (_, at) =>
    Math.max(...rows.map((row) => widthOf(textOf(row[at] ?? '', screen)))),
  );
  const widths = fitted(natural, screen.width - gap.length * (columns - 1));
  return rows.map((row) => {
    const line: Piece[] = [];
    let left = screen.width;
    for (const [at, piece] of row.entries()) {
      const shown = cell(piece, Math.min(widths[at] ?? 0, left), screen);
      const used = widthOf(textOf(shown, screen));
      const padding = at === row.length - 1 ? '' : `${' '.repeat((widths[at] ?? 0) - used)}${gap}`;
      left -= used + padding.length;
      line.push(shown, padding);
      if (left <= 0) break;
    }
    return line;
  });
}

/** Takes columns from the widest cells first, so that short ones stay whole. */
function fitted(natural: readonly number[], width: number): number[] {
  const widths = natural.map((each) => Math.min(each, width));
  for (let total = sum(widths); total > width; total--) {
    const widest = Math.max(...widths);
    if (widest <= widthMin) break;
    widths[widths.lastIndexOf(widest)] = widest - 1;
  }
  return widths;
}

const sum = (widths: readonly number[]): number => widths.reduce((total, width) => total + width, 0);

function cell(piece: Piece, width: number, screen: Screen): Piece {
  const text = textOf(piece, screen);
  if (widthOf(text) <= width) return piece;
  return typeof piece === 'string' ? cut(text, width) : { style: piece.style, text: cut(text, width) };
}
