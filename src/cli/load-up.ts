/**
 * Loads `hostler up`: as the one file it was bundled to, or from the files that were compiled when there is no bundle.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ownDataFolder } from '../config/folders.js';
import type { Words } from './command.js';
import { boundHeap } from './heap-bounds.js';
import { runBundle } from './kept-code.js';

type Up = typeof import('./up.js');

export async function loadUp(words: Words): Promise<(words: Words) => Promise<number>> {
  const bundle = fileURLToPath(new URL('./up.bundle.js', import.meta.url));
  const { up } = existsSync(bundle)
    ? withoutReports(() => runBundle(bundle, codeFolder(words.text('data-dir'), process.env)) as Up)
    : await import('./up.js');
  boundHeap();
  return (given) => up(given, { serveWorkers });
}

/** Kept code is run before anything is confirmed: a relative folder may be one that a repository brought along. */
export const codeFolder = (given: string | undefined, env: NodeJS.ProcessEnv): string | undefined =>
  given !== undefined && path.isAbsolute(given) ? given : ownDataFolder(env);

const serveWorkers = async () => (await import('../broker/serve-workers.js')).serveWorkers;

/**
 * libsql has a diagnostic report of the whole process made when it is loaded, only to learn which C library there is; without
 * one it finds that out from a file, in less than a millisecond.
 */
function withoutReports<T>(load: () => T): T {
  const { report } = process;
  const getReport = report?.getReport;
  if (report) report.getReport = () => ({});
  try {
    return load();
  } finally {
    if (report && getReport) report.getReport = getReport;
  }
}
