/**
 * Runs one cell: the suite against the gateway, with one kind of connection to the fixture and the requirements of one revision.
 * Not here: the list of cells (cells.mjs), the suite as the server (run.mjs).
 *
 * Invariant: if client and server have the same era, no failure may be expected at the endpoint of the server.
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

/** The problems of a verdict, one line each: unexpected failures, and expected failures that did not occur. */
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

/** How many of the scenarios that do not count have passed. */
export function unscored(found, wanted) {
  const others = [...found.keys()].filter((scenario) => !wanted.includes(scenario));
  const { passed, total } = judge(found, others, []);
  return { passed, total };
}

/** `only`: runs one scenario instead of all. Returns the row of the matrix and its problems. */
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
