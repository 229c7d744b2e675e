/**
 * Installs the pinned packages of tools/package.json, each into a separate folder and without install scripts, so that third-party
 * packages share no dependency and run no code before the lane starts them. Packages that cannot be installed are reported.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const tools = fileURLToPath(new URL('./tools/', import.meta.url));
const { servers, clients, peers } = JSON.parse(readFileSync(path.join(tools, 'package.json'), 'utf8'));
const options = [
  '--ignore-scripts',
  '--no-audit',
  '--no-fund',
  '--no-package-lock',
  '--omit=dev',
  '--legacy-peer-deps',
];
const run = promisify(execFile);

export const folderOf = (name) => path.join(tools, 'node_modules', '.real', name.replaceAll('/', '+'));
export const isInstalled = (name) => existsSync(path.join(folderOf(name), 'done'));

async function install(name, version) {
  if (isInstalled(name)) return undefined;
  const folder = folderOf(name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  try {
    await run('npm', ['install', ...options, `${name}@${version}`, ...(peers[name] ?? [])], {
      cwd: folder,
      timeout: 180_000,
    });
    writeFileSync(path.join(folder, 'done'), version);
    return undefined;
  } catch (error) {
    return `${name}@${version}: ${/npm error (?:notarget )?(?!code|A complete)(.*)/.exec(error.stderr)?.[1] ?? error.message}`;
  }
}

/** Installs two packages at a time. Returns the reasons for those that cannot be installed. */
export async function installReal() {
  const waiting = Object.entries({ ...clients, ...servers });
  const failed = [];
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const why = await install(...next);
      if (why) failed.push(why);
    }
  };
  await Promise.all([work(), work()]);
  return failed;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log((await installReal()).join('\n'));
