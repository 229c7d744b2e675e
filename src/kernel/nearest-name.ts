/** Longer names are not compared, because the cost grows with the product of both lengths. */
const charsMax = 100;

const thirdOf = ({ length }: string): number => Math.max(1, Math.floor(length / 3));

/** Suggests the known name that needs the fewest edits, at most `editsMax`; undefined if none is that close. */
export function nearestName(
  written: string,
  known: Iterable<string>,
  editsMax: (name: string) => number = thirdOf,
): string | undefined {
  if (written.length > charsMax) return undefined;
  let nearest: string | undefined;
  let fewest = Number.POSITIVE_INFINITY;
  for (const name of known) {
    const edits = editsBetween(written.toLowerCase(), name.toLowerCase());
    if (edits >= fewest || edits > editsMax(name)) continue;
    nearest = name;
    fewest = edits;
  }
  return nearest;
}

function editsBetween(a: string, b: string): number {
  let [twoBack, last]: [number[], number[]] = [[], Array.from({ length: b.length + 1 }, (_, at) => at)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let edits = Math.min(at(last, j) + 1, at(row, j - 1) + 1, at(last, j - 1) + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        edits = Math.min(edits, at(twoBack, j - 2) + 1);
      row.push(edits);
    }
    [twoBack, last] = [last, row];
  }
  return at(last, b.length);
}

const at = (row: readonly number[], index: number): number => row[index] ?? Number.POSITIVE_INFINITY;

/** The start of a hint; empty if no known name is close. */
export function didYouMean(written: string, known: Iterable<string>): string {
  const near = nearestName(written, known);
  return near === undefined ? '' : `did you mean ${near}? `;
}
