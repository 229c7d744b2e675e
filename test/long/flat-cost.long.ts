/**
 * Cost must not grow with what does not take part: CPU per call by servers, tools and idle clients, and one changed list by keys
 * that listen. The figures are written to docs/reports/flat-cost.md with `SAVE=1`.
 */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const driver = fileURLToPath(new URL('../reliability/flat-cost-driver.mjs', import.meta.url));
const report = new URL('../../docs/reports/flat-cost.md', import.meta.url);
const ratioMax = 1.2;
const changeCpuMsMax = 50;
const stallMsMax = 10;

interface Figures {
  readonly cells: readonly {
    readonly servers: number;
    readonly toolsEach: number;
    readonly clients: number;
    readonly cpuUs: number;
  }[];
  readonly change: { readonly cpuMs: number; readonly stallMs: number };
}

test('a call costs the same whatever else is there, and a changed list costs at most 50 ms for 1,000 keys', async () => {
  const load = loadavg()[0]?.toFixed(1);
  const { stdout } = await promisify(execFile)(process.execPath, [driver]);
  const { cells, change } = JSON.parse(stdout) as Figures;
  const base = cells[0]?.cpuUs as number;
  const rows = cells.map(({ servers, toolsEach, clients, cpuUs }) => ({
    row: `| ${servers} | ${servers * toolsEach} | ${clients} | ${cpuUs.toFixed(1)} | ${(cpuUs / base).toFixed(2)} |`,
    ratio: cpuUs / base,
  }));
  const text = `# Flat cost, measured

${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${cpus().length} cores, load ${load} before the run.

CPU of the process of \`hostler up\` per call, 16 calls at once to one server through \`/mcp\`, with key, role, budget and metrics,
after 8 s of warm-up; median of rounds of new processes. Idle clients have a key each and listen for changes of lists.

| servers | tools | clients | us per call | of the first row |
| ---: | ---: | ---: | ---: | ---: |
${rows.map(({ row }) => row).join('\n')}

One of 1,000 tools of a server changes while 1,000 keys listen: ${change.cpuMs.toFixed(0)} ms of CPU from the call that changes it to the
last notification, reading the list again and storing it included; the event loop stood still for at most ${change.stallMs.toFixed(1)} ms.
`;
  console.log(text);
  if (process.env.SAVE === '1') writeFileSync(report, text);
  for (const { row, ratio } of rows) expect(ratio, row).toBeLessThanOrEqual(ratioMax);
  expect(change.cpuMs).toBeLessThanOrEqual(changeCpuMsMax);
  expect(change.stallMs).toBeLessThanOrEqual(stallMsMax);
});
