/**
 * `npm run conformance [-- options]`: the official suite against the gateway, cell by cell.
 *   --cell NAME          one kind of upstream (cells.mjs), `client`, or `sdk-client` (the official client, to compare)
 *   --requirements REV   one revision
 *   --scenario NAME      one scenario
 *   --direct             the fixture alone, without the gateway
 *   --save               write docs/conformance.md; only after a complete run without problems
 *   --verbose            show the output of hostler and the suite
 * Exits with 1 after an unexpected failure, an expected failure that did not occur, or any failure in a cell of one era. Not here:
 * the parts of a run (cells.mjs, cell-run.mjs, suite.mjs, gateway.mjs, verdict.mjs, report.mjs).
 */
import { readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { expectedFailures, expectedFor, problemsOf, runCell, unscored } from './cell-run.mjs';
import { clientScenarios, requirements, upstreams } from './cells.mjs';
import { startFixture } from './gateway.mjs';
import { document, table } from './report.mjs';
import { runClientScenario, runServerSuite, scored, suiteNode, suiteVersion } from './suite.mjs';
import { judge } from './verdict.mjs';

const { values: options } = parseArgs({
  options: {
    cell: { type: 'string' },
    requirements: { type: 'string' },
    scenario: { type: 'string' },
    direct: { type: 'boolean', default: false },
    save: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
  },
});
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const log = options.verbose ? (text) => process.stderr.write(text) : undefined;
const isChosen = (scenario) => options.scenario === undefined || options.scenario === scenario;

const clientCells = ['client', 'sdk-client'];
const isClient = ({ name }) => clientCells.includes(name);

const rows = [];
const problems = [];

function note(cell, verdict) {
  problems.push(...problemsOf(cell, verdict));
  return verdict;
}

async function directRow(upstream, { revision }) {
  const fixture = await startFixture(upstream);
  try {
    const found = await runServerSuite({ url: fixture.url, revision, only: options.scenario, log });
    const wanted = scored(revision, 'server').filter(isChosen);
    const single = note(`direct ${upstream.name} ${revision}`, judge(found, wanted, []));
    return { cell: `direct ${upstream.name}`, revision, single, unscored: unscored(found, wanted) };
  } finally {
    await fixture.stop();
  }
}

async function gatewayRow(upstream, requirement) {
  const { row, problems: found } = await runCell(upstream, requirement, { only: options.scenario, log });
  problems.push(...found);
  return row;
}

/** `cell`: `client`, or `sdk-client` for the official client without Hostler. */
async function clientRow(cell, { revision }) {
  const name = `${cell} ${revision}`;
  const wanted = clientScenarios[revision].filter(isChosen);
  const counted = scored(revision, 'client');
  const found = new Map();
  const command = `${process.execPath} ${here('./driver.mjs')}`;
  for (const scenario of wanted) {
    const env = {
      HOSTLER_CONFORMANCE_VERBOSE: options.verbose ? '1' : '',
      HOSTLER_CONFORMANCE_DIRECT: cell === 'sdk-client' ? '1' : '',
    };
    const one = await runClientScenario({ command, revision, scenario, log, env });
    for (const [, checks] of one) found.set(scenario, checks);
  }
  const single = judge(
    found,
    wanted.filter((each) => counted.includes(each)),
    expectedFor(name, 'client'),
  );
  // Failures of the official client are not failures of Hostler.
  if (cell === 'client') note(name, single);
  return { cell, revision, single, unscored: unscored(found, counted) };
}

async function main() {
  suiteNode();
  const isWhole =
    !options.direct && [options.cell, options.requirements, options.scenario].every((each) => each === undefined);
  if (options.save && !isWhole) throw new Error('--save is for a whole run, without filters');
  const chosen = requirements.filter(({ revision }) => (options.requirements ?? revision) === revision);
  const cells = [...upstreams, ...(options.direct ? [] : clientCells.map((name) => ({ name })))].filter(
    ({ name }) => (options.cell ?? name) === name,
  );
  if (chosen.length === 0 || cells.length === 0) throw new Error('no such cell or revision');
  for (const upstream of cells) {
    for (const requirement of chosen) {
      if (options.direct && (upstream.kind !== 'http' || upstream.era !== requirement.era)) continue;
      const wanted = isClient(upstream)
        ? clientScenarios[requirement.revision]
        : scored(requirement.revision, 'server');
      if (!wanted.some(isChosen)) continue;
      process.stderr.write(`${upstream.name} ${requirement.revision}\n`);
      try {
        if (options.direct) rows.push(await directRow(upstream, requirement));
        else if (isClient(upstream)) rows.push(await clientRow(upstream.name, requirement));
        else rows.push(await gatewayRow(upstream, requirement));
      } catch (error) {
        problems.push(`${upstream.name} ${requirement.revision}: ${error.message}`);
        rows.push({ cell: upstream.name, revision: requirement.revision });
      }
    }
  }
  console.log(table(rows));
  for (const problem of problems) console.log(problem);
  if (options.save && problems.length > 0) console.log('docs/conformance.md is left as it was');
  else if (options.save) {
    const { version } = JSON.parse(readFileSync(here('../../package.json'), 'utf8'));
    const versions = { hostler: version, 'the suite': suiteVersion(), Node: process.versions.node };
    const date = new Date().toISOString().slice(0, 10);
    writeFileSync(here('../../docs/conformance.md'), document({ rows, expected: expectedFailures, versions, date }));
  }
  return problems.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
