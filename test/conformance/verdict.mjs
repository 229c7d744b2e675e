/**
 * What the suite found, against what was expected to fail. Pure.
 * Not here: running anything (suite.mjs, gateway.mjs).
 *
 * Invariants: a warning is a failure, as in the suite itself; an expectation that nothing meets is as wrong as a failure
 * that nobody expected.
 */

/** A line of expected-failures.yml: `- scenario` or `- scenario:check`, always with a `# why`. */
const entryLine = /^ {4}- ([^\s:#]+)(?::([^\s#]+))?\s+# (\S.*)$/;

/**
 * cell -> { server: [{scenario, check, why}], client: [...] }. The suite's own format (`server:` and `client:` lists),
 * below the name of the cell it holds for. Throws at the first line that is neither, with its number.
 */
export function parseExpected(text) {
  const cells = new Map();
  let cell;
  let side;
  for (const [index, line] of text.split('\n').entries()) {
    if (/^\s*(#.*)?$/.test(line)) continue;
    const name = /^(\S[^#:]*):\s*(?:#.*)?$/.exec(line)?.[1];
    const section = /^ {2}(server|client):\s*$/.exec(line)?.[1];
    const entry = entryLine.exec(line);
    if (name !== undefined) {
      if (cells.has(name)) throw new Error(`expected-failures.yml:${index + 1}: ${name} is there twice`);
      cell = { server: [], client: [] };
      side = undefined;
      cells.set(name, cell);
    } else if (section !== undefined && cell !== undefined) side = section;
    else if (entry !== null && side !== undefined) {
      cell[side].push({ scenario: entry[1], check: entry[2], why: entry[3] });
    } else throw new Error(`expected-failures.yml:${index + 1}: not an entry with its reason: ${line}`);
  }
  return cells;
}

const hasFailed = ({ status }) => status === 'FAILURE' || status === 'WARNING';

/**
 * found: scenario -> checks. wanted: the scenarios that count. expected: entries for this cell.
 * Returns what passed, what failed as expected and not, and which expectations are stale.
 */
export function judge(found, wanted, expected) {
  const met = new Set();
  const judged = wanted.map((scenario) => {
    const checks = found.get(scenario);
    if (checks === undefined) return { scenario, passed: false, unexpected: [{ id: scenario, why: 'was not run' }] };
    const failed = checks.filter(hasFailed);
    const unexpected = failed.filter((check) => {
      const entries = expected.filter((each) => each.scenario === scenario && (each.check ?? check.id) === check.id);
      for (const entry of entries) met.add(entry);
      return entries.length === 0;
    });
    return {
      scenario,
      passed: failed.length === 0,
      unexpected: unexpected.map(({ id, errorMessage }) => ({ id, why: errorMessage ?? 'failed' })),
    };
  });
  const stale = expected.filter((entry) => wanted.includes(entry.scenario) && !met.has(entry));
  return { judged, stale, passed: judged.filter(({ passed }) => passed).length, total: wanted.length };
}
