/**
 * Chooses the mutants of a run: every mutant of the files where a mistake runs a call twice or keeps a server away, and a
 * seeded sample of the others. Enumerates them with StrykerJS' own instrumenter, so a chosen mutant is one that it will make.
 */
import * as fs from 'node:fs';
import path from 'node:path';
import { Instrumenter } from './tools/node_modules/@stryker-mutator/instrumenter/dist/src/index.js';

const folders = ['src/session', 'src/transports/http', 'src/catalog', 'src/host', 'src/policy', 'src/supervisor'];

/** Mutated completely. */
const wholeFiles = [
  'src/policy/retry.ts',
  'src/policy/breaker-stage.ts',
  'src/policy/breaker.ts',
  'src/transports/http/call-queue.ts',
  'src/transports/http/post-call.ts',
  'src/session/eras/legacy/session-renewal.ts',
];

/** The same for the same mutation, in whichever copy of the project it is made. */
export function mutantKey({ fileName, mutatorName, location, replacement }) {
  const file = fileName.slice(fileName.lastIndexOf('/src/') + 1);
  const { start, end } = location;
  return [file, mutatorName, start.line, start.column, end.line, end.column, replacement].join(' ');
}

export function sourceFiles(root) {
  return folders.flatMap((folder) =>
    fs
      .readdirSync(path.join(root, folder), { recursive: true })
      .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
      .map((name) => path.join(folder, name)),
  );
}

/** Returns the keys of the mutants to test: all of `wholeFiles`, and `count` of the others drawn with `random`. */
export async function chooseMutants(root, count, random) {
  const whole = await mutantsOf(root, wholeFiles);
  const others = await mutantsOf(
    root,
    sourceFiles(root).filter((file) => !wholeFiles.includes(file)),
  );
  for (let i = 0; i < Math.min(count, others.length); i++) {
    const j = i + Math.floor(random() * (others.length - i));
    [others[i], others[j]] = [others[j], others[i]];
  }
  return { whole: whole.map(mutantKey), sampled: others.slice(0, count).map(mutantKey), population: others.length };
}

async function mutantsOf(root, files) {
  const logger = { debug() {}, info() {}, warn() {}, error() {}, trace() {}, fatal() {}, isDebugEnabled: () => false };
  const inputs = files.map((file) => ({
    name: path.join(root, file),
    content: fs.readFileSync(path.join(root, file), 'utf8'),
    mutate: true,
  }));
  const options = { plugins: null, ignorers: [], excludedMutations: [] };
  const { mutants } = await new Instrumenter(logger).instrument(inputs, options);
  return mutants.filter(({ status }) => status === undefined);
}
