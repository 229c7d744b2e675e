/**
 * Prepares a new clone: dependencies, build output and, for tests, system packages.
 * Uses Node only, because it runs before anything is installed. A step whose input has not changed is skipped.
 * Not here: the commands that run afterwards (start.mjs, test.mjs), the lock (lock.mjs).
 *
 * Invariant: two concurrent runs never write the same tree. The second one waits, and then has nothing to do.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { withLock } from './lock.mjs';

const nodeFloor = [20, 19];

export const root = fs.realpathSync(fileURLToPath(new URL('..', import.meta.url)));

/** System commands that tests use. To add one, add a row. */
export const systemPackages = [
  { command: 'bwrap', apt: 'bubblewrap', without: 'tests of sandboxed servers fail' },
  { command: 'perl', apt: 'perl', without: 'tests with quick stub servers fail' },
  { command: 'nats-server', apt: 'nats-server', without: 'tests of the broker over NATS fail' },
  { command: 'strace', apt: 'strace', without: 'tests of failing disks fail' },
  { command: 'nft', apt: 'nftables', without: 'tests of cut networks fail' },
  { command: 'unshare', apt: 'util-linux', without: 'tests that count processes in a namespace fail' },
];

requireNode();

function requireNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > nodeFloor[0] || (major === nodeFloor[0] && minor >= nodeFloor[1])) return;
  console.error(`Hostler needs Node ${nodeFloor.join('.')} or newer; this is ${process.versions.node}.`);
  process.exit(1);
}

/** Path of a command that a development dependency installs. */
export const bin = (name) => path.join(root, 'node_modules', '.bin', name);

/** Runs `npm ci` if the installed packages differ from package-lock.json. */
export const ensureDependencies = () => ensureInstalled(root, 'dependencies installed', []);

/** Folder of the official conformance suite and what it needs, separate from the dependencies of Hostler. */
export const conformanceTools = path.join(root, 'test', 'conformance', 'tools');

/** Installs the conformance tools without running their scripts. */
export const ensureConformanceTools = () =>
  ensureInstalled(conformanceTools, 'conformance tools installed', ['--ignore-scripts']);

/** Folder of StrykerJS, which only the mutation lane needs. */
export const mutationTools = path.join(root, 'test', 'mutation', 'tools');

/** Without peer dependencies: the runner must use the vitest of the project, which it finds in a parent folder. */
export const ensureMutationTools = () =>
  ensureInstalled(mutationTools, 'mutation tools installed', ['--ignore-scripts', '--legacy-peer-deps']);

/** Folder of third-party bundlers, which only the lane `packed` needs. */
export const bundlerTools = path.join(root, 'test', 'packed', 'tools');

/** Install scripts are not run: esbuild finds its program in the package for the platform. */
export const ensureBundlerTools = () => ensureInstalled(bundlerTools, 'bundlers installed', ['--ignore-scripts']);

/** Folder of knip, which only `npm run check` needs. */
export const knipTools = path.join(root, 'test', 'knip', 'tools');

export const ensureKnip = () => ensureInstalled(knipTools, 'knip installed', ['--ignore-scripts']);

async function ensureInstalled(folder, done, options) {
  const modules = path.join(folder, 'node_modules');
  // A linked node_modules belongs to another checkout; `npm ci` would delete it there.
  if (fs.lstatSync(modules, { throwIfNoEntry: false })?.isSymbolicLink()) return;
  const stamp = path.join(modules, '.hostler-stamp');
  const wanted = dependenciesKey(folder);
  if (read(stamp) === wanted) return;
  await withLock(`tree-${folder}`, async () => {
    const found = read(stamp);
    if (found === wanted) return;
    if (found === undefined && installedMatchesLockfile(folder)) {
      fs.writeFileSync(stamp, wanted);
      return;
    }
    await timed(done, () => installLocked(folder, options));
    fs.writeFileSync(stamp, wanted);
  });
}

/** The order matters: the second bundler replaces files that the first one reads. */
const bundlers = ['bundle.mjs', 'bundle-library.mjs'];

/** If the sources have changed since dist/ was made, compiles src/ to dist/ and makes the bundles. */
export async function ensureBuild() {
  const dist = path.join(root, 'dist');
  const stamp = path.join(dist, '.hostler-stamp');
  if (read(stamp) === sourcesKey()) return;
  await withLock(`tree-${root}`, async () => {
    const wanted = sourcesKey();
    if (read(stamp) === wanted) return;
    await timed('built', async () => {
      fs.rmSync(dist, { recursive: true, force: true });
      await run(process.execPath, [bin('tsc'), '-p', 'tsconfig.build.json'], 'tsc');
      for (const script of bundlers) await run(process.execPath, [path.join(root, 'scripts', script)], script);
      const main = path.join(dist, 'cli', 'main.js');
      if (fs.existsSync(main)) fs.chmodSync(main, 0o755);
    });
    // The stamp is written last, so that an interrupted build is repeated.
    fs.writeFileSync(stamp, wanted);
  });
}

/** Installs missing system packages for tests, if this user may. Returns the rows that are still missing. */
export async function ensureSystemPackages(packages = systemPackages) {
  const missing = () => packages.filter((row) => which(row.command) === undefined);
  if (missing().length === 0) return [];
  const mayInstall = process.getuid?.() === 0 && which('apt-get') !== undefined;
  if (mayInstall) await withLock('system-packages', () => aptInstall(missing().map((row) => row.apt)));
  const left = missing();
  for (const row of left) {
    const why = mayInstall ? 'apt-get could not install it' : 'only root on a system with apt-get can install it here';
    say(`${row.command} is missing (package ${row.apt}; ${why}): ${row.without}`);
  }
  return left;
}

async function installLocked(folder, options) {
  const [npm, ...first] = npmCommand();
  const install = (...args) =>
    run(npm, [...first, ...args, '--no-audit', '--no-fund', '--include=dev', ...options], `npm ${args[0]}`, folder);
  try {
    await install('ci');
  } catch (error) {
    if (!manifestMatchesLockfile(folder)) throw error;
    // A lockfile that was written with a package mirror may lack optional packages for other platforms, and `npm ci` refuses such a
    // lockfile. `npm install` accepts it, so the installed packages are compared with it afterwards.
    fs.rmSync(path.join(folder, 'node_modules'), { recursive: true, force: true });
    await install('install', '--no-save');
    if (!installedMatchesLockfile(folder))
      throw new Error('the packages that npm installed differ from package-lock.json');
  }
}

function manifestMatchesLockfile(folder) {
  const manifest = readJson(folder, 'package.json');
  const locked = readJson(folder, 'package-lock.json').packages[''];
  const wanted = ({ dependencies, devDependencies, optionalDependencies, peerDependencies }) =>
    [dependencies, devDependencies, optionalDependencies, peerDependencies].map((each) =>
      Object.entries(each ?? {}).sort(),
    );
  return JSON.stringify(wanted(manifest)) === JSON.stringify(wanted(locked));
}

async function aptInstall(names) {
  if (names.length === 0) return;
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args) => {
    const all = ['-qq', '-o', 'DPkg::Lock::Timeout=300', ...args];
    return output('apt-get', all, { env });
  };
  const install = () => apt('install', '-y', '--no-install-recommends', ...names);
  const startedMs = Date.now();
  let last = await install();
  // The package lists may be missing or too old: fetch them once and try again.
  if (last.status !== 0 && (await apt('update')).status === 0) last = await install();
  if (last.status === 0) say(`${names.join(', ')} installed (${seconds(startedMs)})`);
  else process.stderr.write(last.stderr);
}

function dependenciesKey(folder) {
  const lockfile = fs.readFileSync(path.join(folder, 'package-lock.json'));
  return hash([lockfile, process.versions.node.split('.')[0], process.platform, process.arch]);
}

/** Also true after an `npm ci` by hand: npm records the installed packages in a hidden lockfile, which it writes last. */
function installedMatchesLockfile(folder) {
  const hidden = read(path.join(folder, 'node_modules', '.package-lock.json'));
  if (hidden === undefined) return false;
  const installed = JSON.parse(hidden).packages;
  const locked = readJson(folder, 'package-lock.json').packages;
  const same = ([name, entry]) =>
    locked[name]?.version === entry.version && locked[name]?.integrity === entry.integrity;
  const present = ([name, entry]) => name === '' || entry.optional || installed[name] !== undefined;
  return Object.entries(installed).every(same) && Object.entries(locked).every(present);
}

function sourcesKey() {
  const sources = fs
    .readdirSync(path.join(root, 'src'), { recursive: true })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => path.join('src', name));
  const settings = fs.readdirSync(root).filter((name) => /^tsconfig.*\.json$/.test(name) || name === 'package.json');
  const files = [...sources, ...settings, ...bundlers.map((script) => path.join('scripts', script))].sort();
  return hash(files.flatMap((name) => [name, fs.readFileSync(path.join(root, name))]));
}

function hash(parts) {
  const sum = createHash('sha256');
  for (const part of parts) sum.update(part).update('\0');
  return sum.digest('hex');
}

function npmCommand() {
  // Under `npm run` this is the path of the npm in use. Another package manager sets it to its own path.
  const cli = process.env.npm_execpath;
  return cli !== undefined && path.basename(cli).startsWith('npm-cli') ? [process.execPath, cli] : ['npm'];
}

/** Runs a command. Its output is shown only if it fails. */
async function run(command, args, name, cwd = root) {
  const done = await output(command, args, { cwd });
  if (done.status === 0) return;
  // npm prints all its options after a usage error.
  const text = [done.stdout, done.stderr]
    .filter(Boolean)
    .join('\n')
    .trim()
    .split(/\n[^\n]*Usage:/)[0];
  const how = done.error?.message ?? (done.signal === null ? `exit code ${done.status}` : `signal ${done.signal}`);
  throw new Error(`${name} failed (${how})\n${text}`);
}

/** Not spawnSync, because independent steps run concurrently. Also resolves if the command cannot be started. */
function output(command, args, options) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    const done = { status: null, signal: null, error: undefined, stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'])
      child[name].setEncoding('utf8').on('data', (chunk) => {
        done[name] += chunk;
      });
    child.once('error', (error) => resolve({ ...done, error }));
    child.once('close', (status, signal) => resolve({ ...done, status, signal }));
  });
}

function which(command) {
  for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
    const file = path.join(folder, command);
    try {
      fs.accessSync(file, fs.constants.X_OK);
      if (fs.statSync(file).isFile()) return file;
    } catch {
      // This folder does not have the command; the next one may.
    }
  }
  return undefined;
}

function read(file) {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

const readJson = (folder, file) => JSON.parse(fs.readFileSync(path.join(folder, file), 'utf8'));

async function timed(done, work) {
  const startedMs = Date.now();
  await work();
  say(`${done} (${seconds(startedMs)})`);
}

const seconds = (sinceMs) => `${((Date.now() - sinceMs) / 1000).toFixed(1)} s`;

// To stderr, because stdout belongs to the command that runs afterwards.
const say = (line) => process.stderr.write(`bootstrap: ${line}\n`);

const steps = {
  deps: [ensureDependencies],
  build: [ensureDependencies, ensureBuild],
  system: [ensureSystemPackages],
  conformance: [ensureConformanceTools],
  all: [ensureDependencies, ensureSystemPackages, ensureBuild],
};

/** True when the module at `url` is the main module. */
export const isMain = (url) => process.argv[1] !== undefined && fs.realpathSync(process.argv[1]) === fileURLToPath(url);

if (isMain(import.meta.url)) {
  const todo = steps[process.argv[2] ?? 'all'];
  if (todo === undefined) {
    console.error(`usage: bootstrap.mjs [${Object.keys(steps).join('|')}]`);
    process.exit(2);
  }
  try {
    for (const step of todo) await step();
  } catch (error) {
    console.error(error.message);
    process.exit(1);
  }
}
