/**
 * One cell: the suite against the gateway with the fixture behind it in one way, under one revision's requirements.
 * Not here: which cells there are (cells.mjs), the suite as the server (run.mjs).
 *
 * Invariant: where client and server are of one era nothing may be expected to fail at the server's own endpoint.
 */
import { readFileSync } from 'node:fs';
import { isolationFor, nameless } from './cells.mjs';
import { startCell } from './gateway.mjs';
import { runServerSuite, scored } from './suite.mjs';
import { judge, parseExpected } from './verdict.mjs';

export const expectedFailures = parseExpected(
  readFileSync(new URL('./expected-failures.yml', import.meta.url), 'utf8'),
);
export const expectedFor = (cell, side) => expectedFailures.get(cell)?.[side] ?? [];

/** What is wrong with a verdict, one line each: what failed and was not expected to, and the other way round. */
export function problemsOf(cell, { judged, stale }) {
  return [
    ...judged.flatMap(({ scenario, unexpected }) =>
      unexpected.map(({ id, why }) => `${cell}: ${scenario}: ${id}: ${why}`),
    ),
    ...stale.map(
      ({ scenario, check }) =>
        `${cell}: ${scenario}${check === undefined ? '' : `:${check}`} is expected to fail and does not`,
    ),
  ];
}

/** What passed of what ran and does not count. */
export function unscored(found, wanted) {
  const others = [...found.keys()].filter((scenario) => !wanted.includes(scenario));
  const { passed, total } = judge(found, others, []);
  return { passed, total };
}

/** `only`: one scenario instead of all. Returns the row of the matrix, and what is wrong with it. */
export async function runCell(upstream, { revision, era }, { only, log } = {}) {
  const name = `${upstream.name} ${revision}`;
  const expected = expectedFor(name, 'server');
  const isOneEra = upstream.era === era && expected.length > 0;
  const problems = isOneEra ? [`${name}: both sides are of one era, nothing may fail`] : [];
  const cell = await startCell(upstream, { log, isolation: isolationFor(upstream, { era }) });
  try {
    const wanted = scored(revision, 'server').filter((scenario) => (only ?? scenario) === scenario);
    const found = await runServerSuite({ url: cell.single, revision, only, log });
    const single = judge(found, wanted, expected);
    problems.push(...problemsOf(name, single));
    const row = { cell: upstream.name, revision, single, unscored: unscored(found, wanted) };
    const merged = wanted.filter((scenario) => nameless.has(scenario));
    if (merged.length === 0) return { row, problems };
    const all = await runServerSuite({ url: cell.aggregate, revision, only, log });
    const aggregate = judge(all, merged, [...expected, ...expectedFor(`all ${revision}`, 'server')]);
    problems.push(...problemsOf(`${name} on /mcp`, aggregate));
    return { row: { ...row, aggregate }, problems };
  } finally {
    await cell.stop();
  }
}
