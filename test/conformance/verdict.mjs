/**
 * Compares the results of the suite with the expected failures. Pure.
 * Not here: running anything (suite.mjs, gateway.mjs).
 *
 * Invariants: a warning is a failure, as in the suite. An expected failure that does not occur is a problem, like an unexpected
 * failure.
 */

/** A line of expected-failures.yml: `- scenario` or `- scenario:check`, always with a `# why`. */
const entryLine = /^ {4}- ([^\s:#]+)(?::([^\s#]+))?\s+# (\S.*)$/;

/**
 * cell -> { server: [{scenario, check, why}], client: [...] }. The format of the suite (lists `server:` and `client:`), below the
 * name of the cell. Throws with the number of the first invalid line.
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
 * found: scenario -> checks. wanted: the scenarios that count. expected: entries for this cell. Returns passed scenarios, expected
 * and unexpected failures, and stale expectations.
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
