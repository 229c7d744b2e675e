/**
 * One lock per name for all processes on this machine, held while a function runs.
 * A lock is a file that names its owner. It is created with its content (by a link), so it is never incomplete.
 *
 * Invariant: only one process at a time removes a stale lock, and only after it has checked again that the owner has ended. Without
 * the second check, a slow waiter could remove the lock of the next owner.
 */
import { createHash, randomUUID } from 'node:crypto';
import * as fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 100;
const waitMsMax = 15 * 60_000;
// Removing a stale lock takes microseconds. A remover that takes longer than this has died.
const breakerMsMax = 10_000;

export async function withLock(name, work, options = {}) {
  const release = await acquire(lockFile(name), options.waitMs ?? waitMsMax);
  try {
    return await work();
  } finally {
    release();
  }
}

export function lockFile(name) {
  const key = createHash('sha256').update(name).digest('hex').slice(0, 16);
  return path.join(os.tmpdir(), `hostler-${key}.lock`);
}

async function acquire(file, waitMs) {
  const giveUpMs = Date.now() + waitMs;
  const mine = JSON.stringify({ pid: process.pid, started: startOf(process.pid), nonce: randomUUID() });
  for (let isReported = false; ; await delay(pollMs)) {
    if (create(file, mine)) return () => fs.rmSync(file, { force: true });
    const owner = ownerOf(file);
    if (owner === undefined) continue;
    if (!lives(owner)) {
      breakStale(file);
      continue;
    }
    if (Date.now() > giveUpMs)
      throw new Error(`process ${owner.pid} still holds ${file}: wait until it has ended, then try again`);
    if (!isReported)
      process.stderr.write(`bootstrap: waiting for process ${owner.pid}, which is doing the same work\n`);
    isReported = true;
  }
}

function create(file, content) {
  const draft = `${file}.${randomUUID()}`;
  fs.writeFileSync(draft, content, { flag: 'wx', mode: 0o600 });
  try {
    fs.linkSync(draft, file);
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  } finally {
    fs.rmSync(draft, { force: true });
  }
}

function breakStale(file) {
  const breaker = `${file}.break`;
  if (!create(breaker, String(process.pid))) {
    const ageMs = Date.now() - (fs.statSync(breaker, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (ageMs > breakerMsMax) fs.rmSync(breaker, { force: true });
    return;
  }
  try {
    const owner = ownerOf(file);
    if (owner !== undefined && !lives(owner)) fs.rmSync(file, { force: true });
  } finally {
    fs.rmSync(breaker, { force: true });
  }
}

/** Undefined if the lock is free now. */
function ownerOf(file) {
  let text;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
  try {
    return JSON.parse(text);
  } catch {
    return { pid: 0 };
  }
}

function lives(owner) {
  if (!(owner.pid > 0)) return false;
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if (error.code === 'ESRCH') return false;
  }
  // Another process may have the id now.
  return startOf(owner.pid) === owner.started;
}

/** Start time of the process in kernel ticks; undefined without /proc. */
function startOf(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The command name may contain spaces and parentheses, so fields are counted after the last parenthesis.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}
