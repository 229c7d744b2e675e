/**
 * A checker for StrykerJS that lets only the chosen mutants through (MUTANTS_FILE holds their keys as a JSON array). StrykerJS
 * reports the others as compile errors, which count neither for nor against the score.
 */
import * as fs from 'node:fs';
import { mutantKey } from './list-mutants.mjs';
import { declareFactoryPlugin, PluginKind } from './tools/node_modules/@stryker-mutator/api/dist/src/plugin/index.js';

function createChecker() {
  const chosen = new Set(JSON.parse(fs.readFileSync(process.env.MUTANTS_FILE, 'utf8')));
  const verdict = (mutant) =>
    chosen.has(mutantKey(mutant)) ? { status: 'passed' } : { status: 'compileError', reason: 'not chosen' };
  return {
    init: async () => {},
    group: async (mutants) => [mutants.map(({ id }) => id)],
    check: async (mutants) => Object.fromEntries(mutants.map((mutant) => [mutant.id, verdict(mutant)])),
  };
}

export const strykerPlugins = [declareFactoryPlugin(PluginKind.Checker, 'chosen-only', createChecker)];
