/**
 * Runs one bundled file of ours with the code that V8 made of it in an earlier run: to compile it anew takes a third of a
 * start.
 * Not here: which file that is (load-up.ts), how it is bundled (scripts/bundle.mjs).
 *
 * Invariants: kept code is only used from a folder that nobody else can write to, and from a file of our own that nobody else
 * put there when the folder was open to others, because whoever writes it says what we do; code of another Node, or of another
 * build of the file, is not used; one file is kept, and nothing fails for want of it.
 */
import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import vm from 'node:vm';
import { requireTrusted } from '../transports/stdio/state-dir.js';
import { withoutBounds } from './heap-bounds.js';

/** How a bundle begins, and what is kept of it: V8 itself only compares the lengths of the sources. */
const mark = /^\/\/ ([0-9a-f]{64})\n/;
const markChars = 64;
/** What is compiled by then is what a start needs, and the start is over. */
const keepAfterMs = 10_000;
const othersMayWrite = 0o022;
/** Less is not worth the writing. */
const growth = 1.05;

/** The exports of the bundle `file`. Its code is kept in `folder`; undefined: nowhere. */
export function runBundle(file: string, folder: string | undefined): unknown {
  // Nothing else than ASCII is in it.
  const source = readFileSync(file, 'latin1');
  const build = mark.exec(source)?.[1];
  const place = folder === undefined || build === undefined ? undefined : path.join(folder, 'code-cache');
  const cachedData = place === undefined ? undefined : read(place, build);
  const script = new vm.Script(source, {
    filename: file,
    ...(cachedData === undefined ? {} : { cachedData }),
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  const module = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(file), module, file);
  if (place !== undefined) keepLater(script, place, `${build}`, script.cachedDataRejected ? undefined : cachedData);
  return module.exports;
}

function read(place: string, build: string | undefined): Buffer | undefined {
  try {
    requireTrusted(path.dirname(place));
    const kept = readOwn(place);
    return kept?.toString('latin1', 0, markChars) === build ? kept?.subarray(markChars) : undefined;
  } catch {
    return undefined;
  }
}

function readOwn(place: string): Buffer | undefined {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const descriptor = openSync(place, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    return isOwn(fstatSync(descriptor)) ? readFileSync(descriptor) : undefined;
  } finally {
    closeSync(descriptor);
  }
}

/** Where there are no users, there is nothing to check. */
function isOwn(facts: Stats, ownUid: number | undefined = process.getuid?.()): boolean {
  return facts.isFile() && (ownUid === undefined || (facts.uid === ownUid && (facts.mode & othersMayWrite) === 0));
}

/** Once early, since V8 forgets what has not run for long; and at a good end, when more has run than had before. */
function keepLater(script: vm.Script, place: string, build: string, used: Buffer | undefined): void {
  let keptBytes = used?.length ?? 0;
  const keep = () => {
    const code = withoutBounds(() => script.createCachedData());
    if (code.length < keptBytes * growth) return;
    keptBytes = code.length;
    write(place, Buffer.concat([Buffer.from(build, 'latin1'), code]));
  };
  if (!used) setTimeout(keep, keepAfterMs).unref();
  process.once('exit', (exitCode) => {
    if (exitCode === 0) keep();
  });
}

function write(place: string, bytes: Buffer): void {
  const unfinished = `${place}.${process.pid}`;
  try {
    mkdirSync(path.dirname(place), { recursive: true, mode: 0o700 });
    requireTrusted(path.dirname(place));
    // Never into what is there already, nor to where that leads.
    writeFileSync(unfinished, bytes, { mode: 0o600, flag: 'wx' });
    renameSync(unfinished, place);
  } catch {
    rmSync(unfinished, { force: true });
  }
}
