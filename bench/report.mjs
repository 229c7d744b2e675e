/** Options and output of all benchmarks, and the report to which the output is saved. */
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
/** Whether a part of the benchmark runs: `--only start,many` selects parts; without it all run. */
export const wanted = (part) => values.only === undefined || values.only.split(',').includes(part);
export const file = (name) => new URL(name, import.meta.url).pathname;
export const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

const lines = [];
export const say = (line) => {
  console.log(line);
  lines.push(line);
};

/** With `--save`, writes the output to docs/reports/. */
export function saveAs(name) {
  if (values.save && values.only === undefined)
    writeFileSync(new URL(`../docs/reports/${name}.md`, import.meta.url), `${lines.join('\n')}\n`);
}
