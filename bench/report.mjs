/**
 * Options of all benchmarks, and the functions that they share.
 * Invariant: a benchmark writes to stdout only. The reports in docs/reports/ are written by hand from that output.
 */
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '1' },
    only: { type: 'string' },
  },
});

export const rounds = Number(values.rounds);
export const seconds = Number(values.seconds);
/** Whether a part of the benchmark runs: `--only start,many` selects parts; without it all run. */
export const wanted = (part) => values.only === undefined || values.only.split(',').includes(part);
export const file = (name) => new URL(name, import.meta.url).pathname;
export const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

export const say = (line) => console.log(line);
