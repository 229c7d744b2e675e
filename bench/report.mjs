/** What every benchmark has: its options, what it says, and where that is kept. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '1' },
    save: { type: 'boolean' },
    only: { type: 'string' },
  },
});

export const rounds = Number(values.rounds);
export const seconds = Number(values.seconds);
/** Whether a part of the benchmark is to run: `--only start,many` names those that are; without it all are. */
export const wanted = (part) => values.only === undefined || values.only.split(',').includes(part);
export const file = (name) => new URL(name, import.meta.url).pathname;
export const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

const lines = [];
export const say = (line) => {
  console.log(line);
  lines.push(line);
};

/** Keeps what was said under docs/reports/, if that was asked for. */
export function saveAs(name) {
  if (values.save && values.only === undefined)
    writeFileSync(new URL(`../docs/reports/${name}.md`, import.meta.url), `${lines.join('\n')}\n`);
}
