/**
 * Values that lie at several paths of one object, found in one pass over it.
 *
 * Invariants: what two readers could take for two values is nobody's (`unclear`): a key that stands twice and all below it, and all
 * in an object with more members than anybody means (`LIMITS.members`). Names are compared as texts, however they are written.
 */
import { LIMITS } from '../kernel/limits.js';
import { readString } from './envelope.js';
import { keyEndBefore, skipKey, skipSpace, skipValue } from './json-scan.js';

export type AtPath = Buffer | 'absent' | 'unclear';
type Path = readonly string[];

/** In the order of the paths, of which none is empty. */
export function valuesAt(bytes: Buffer | undefined, paths: readonly Path[]): AtPath[] {
  const values: AtPath[] = paths.map(() => 'absent');
  if (bytes === undefined) return values;
  const from = skipSpace(bytes, 0, bytes.length);
  if (bytes[from] !== OPEN_BRACE) return values;
  const isRead = new Walk(bytes, paths, values).object(from, [...paths.keys()], 0) >= 0;
  return isRead ? values : values.map(() => 'unclear');
}

/** One name, and the paths that it leads on: those that end with it, and those that go on. */
interface Step {
  readonly ending: number[];
  readonly going: number[];
  count: number;
}

class Walk {
  readonly #bytes: Buffer;
  readonly #paths: readonly Path[];
  readonly #values: AtPath[];

  constructor(bytes: Buffer, paths: readonly Path[], values: AtPath[]) {
    this.#bytes = bytes;
    this.#paths = paths;
    this.#values = values;
  }

  /** `which`: the paths that lead into the object at `from`. Returns the index after it; -1: it is malformed. */
  object(from: number, which: readonly number[], depth: number): number {
    const bytes = this.#bytes;
    const end = bytes.length;
    const steps = this.#stepsOf(which, depth);
    let members = 0;
    let i = skipSpace(bytes, from + 1, end);
    while (bytes[i] !== CLOSE_BRACE) {
      const afterKey = skipKey(bytes, i, end);
      if (afterKey < 0) return -1;
      // Of too many none counts, and their names are not worth reading.
      const isNamed = ++members <= LIMITS.members;
      const step = isNamed ? steps.get(readString(bytes, i + 1, keyEndBefore(bytes, afterKey))) : undefined;
      i = this.#member(skipSpace(bytes, afterKey, end), step, depth);
      if (i < 0) return -1;
      i = skipSpace(bytes, i, end);
      if (bytes[i] === COMMA) i = skipSpace(bytes, i + 1, end);
      else if (bytes[i] !== CLOSE_BRACE) return -1;
    }
    for (const { ending, going, count } of steps.values())
      if (count > 1 || members > LIMITS.members)
        for (const each of [...ending, ...going]) this.#values[each] = 'unclear';
    return i + 1;
  }

  #member(at: number, step: Step | undefined, depth: number): number {
    const bytes = this.#bytes;
    const isFirst = step !== undefined && step.count++ === 0;
    const isWay = isFirst && step.going.length > 0 && bytes[at] === OPEN_BRACE;
    const after = isWay ? this.object(at, step.going, depth + 1) : skipValue(bytes, at, bytes.length, depth + 1);
    if (isFirst && after >= 0) for (const each of step.ending) this.#values[each] = bytes.subarray(at, after);
    return after;
  }

  #stepsOf(which: readonly number[], depth: number): Map<string, Step> {
    const steps = new Map<string, Step>();
    for (const i of which) {
      const path = this.#paths[i] as Path;
      const name = path[depth] as string;
      let step = steps.get(name);
      if (!step) {
        step = { ending: [], going: [], count: 0 };
        steps.set(name, step);
      }
      (path.length === depth + 1 ? step.ending : step.going).push(i);
    }
    return steps;
  }
}

const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const COMMA = 0x2c;
