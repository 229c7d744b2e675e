/**
 * Do the unit tests notice a mistake? StrykerJS makes small mistakes in the source one at a time and runs the unit tests that
 * cover each. Every mutant of the files that decide whether a call runs twice or a server stays away is tested, and a seeded
 * sample of the rest. `SEED` draws another sample, `MUTANTS` sets its size.
 * `docs/reports/mutants.md` lists the mutants of the whole files that survive.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ensureMutationTools, mutationTools, root } from '../../scripts/bootstrap.mjs';
import { seededRandom } from '../../src/kernel/random.js';

interface Mutant {
  readonly status: 'Killed' | 'Timeout' | 'Survived' | 'NoCoverage' | 'CompileError' | 'RuntimeError' | 'Ignored';
  readonly mutatorName: string;
  readonly replacement: string;
  readonly location: { readonly start: { readonly line: number; readonly column: number } };
}

interface Report {
  readonly files: Record<string, { readonly source: string; readonly mutants: readonly Mutant[] }>;
}

interface Chosen {
  readonly whole: readonly string[];
  readonly sampled: readonly string[];
  readonly population: number;
}

const seed = Number(process.env.SEED ?? 20_261_117);
const count = Number(process.env.MUTANTS ?? 600);
const scoreMin = 0.8;
/** A mutant that hangs takes half a minute, so a busy machine needs three times as long as a quiet one. */
const limitMs = 9_000_000;

test('unit tests kill at least 80 % of the mutants', { timeout: limitMs }, async () => {
  await ensureMutationTools();
  const { chooseMutants } = await import('../mutation/list-mutants.mjs');
  const chosen: Chosen = await chooseMutants(root, count, seededRandom(seed));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-mutants-'));
  try {
    const report = await mutate(folder, [...chosen.whole, ...chosen.sampled]);
    const all = Object.entries(report.files).flatMap(([file, { mutants, source }]) =>
      mutants.map((mutant) => ({ file, mutant, line: source.split('\n')[mutant.location.start.line - 1]?.trim() })),
    );
    const of = (...statuses: Mutant['status'][]) => all.filter(({ mutant }) => statuses.includes(mutant.status));
    const killed = of('Killed', 'Timeout').length;
    const alive = of('Survived', 'NoCoverage');
    const score = killed / (killed + alive.length);
    for (const { file, mutant, line } of alive) {
      const { start } = mutant.location;
      console.log(`${mutant.status} ${file}:${start.line}:${start.column} ${mutant.mutatorName}: ${line}`);
      console.log(`    ${mutant.replacement.replaceAll(/\s+/g, ' ').slice(0, 160)}`);
    }
    console.log(
      `seed ${seed}: ${chosen.whole.length} mutants of the whole files, ${chosen.sampled.length} of ${chosen.population} others; ` +
        `${killed} killed, ${of('Survived').length} survived, ${of('NoCoverage').length} not covered; ` +
        `score ${(100 * score).toFixed(1)} %`,
    );
    expect(killed + alive.length).toBeGreaterThan(0.9 * (chosen.whole.length + chosen.sampled.length));
    expect(score).toBeGreaterThanOrEqual(scoreMin);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

async function mutate(folder: string, keys: readonly string[]): Promise<Report> {
  const chosenFile = path.join(folder, 'chosen.json');
  const reportFile = path.join(folder, 'report.json');
  writeFileSync(chosenFile, JSON.stringify(keys));
  const stryker = path.join(mutationTools, 'node_modules/@stryker-mutator/core/bin/stryker.js');
  // The tests run as `npm test` runs them: with the counts of the long tier, some take longer than a mutant may.
  const { TEST_TIER, ...outer } = process.env;
  const env = {
    ...outer,
    MUTANTS_FILE: chosenFile,
    MUTANTS_REPORT: reportFile,
    MUTANTS_DIR: path.join(folder, 'sandbox'),
  };
  const config = path.join(root, 'test/mutation/stryker.config.mjs');
  const child = spawn(process.execPath, [stryker, 'run', config], { cwd: root, env, stdio: 'inherit' });
  const code = await new Promise((resolve) => child.on('exit', resolve));
  expect(code).toBe(0);
  return JSON.parse(readFileSync(reportFile, 'utf8')) as Report;
}
