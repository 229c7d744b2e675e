/** What every benchmark has: its options, what it says, and where that is kept. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '1' },
    save: { type: 'boolean' },
  },
});

export const rounds = Number(values.rounds);
export const seconds = Number(values.seconds);
export const file = (name) => new URL(name, import.meta.url).pathname;
export const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

const lines = [];
export const say = (line) => {
  console.log(line);
  lines.push(line);
};

/** Keeps what was said under docs/reports/, if that was asked for. */
export function saveAs(name) {
  if (values.save) writeFileSync(new URL(`../docs/reports/${name}.md`, import.meta.url), `${lines.join('\n')}\n`);
}
