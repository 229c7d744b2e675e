/**
 * `npm run bench -- first-list`: the time until the tools of 50 new servers are known, compared with a relay that spawns all 50 at
 * once. Rounds are interleaved; ratios are computed within a round, and the median ratio is reported.
 * Options: --rounds N (5).
 */
import { execFileSync } from 'node:child_process';
import process from 'node:process';
import { file, median, rounds, say } from './report.mjs';

const limit = 1.3;
const run = (...args) =>
  Number(execFileSync(process.execPath, [file('./first-list-run.mjs'), ...args.map(String)], { encoding: 'utf8' }));

let isMissed = false;
for (const kind of ['node', 'perl']) {
  const samples = [];
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 ? ['host', 'relay'] : ['relay', 'host'];
    samples.push(Object.fromEntries(order.map((name) => [name, run(name, kind, 50)])));
  }
  const ratio = median(samples.map(({ host, relay }) => host / relay));
  isMissed ||= ratio > limit;
  const [relay, host] = ['relay', 'host'].map((name) => median(samples.map((sample) => sample[name])));
  say(
    `- 50 servers in ${kind}: relay ${relay} ms, Hostler ${host} ms; Hostler relative to the relay ${ratio.toFixed(2)} (at most ${limit})`,
  );
}
process.exitCode = isMissed ? 1 : 0;
