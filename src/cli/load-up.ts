/**
 * Loads `hostler up`: as the one file it was bundled to, or from the files that were compiled when there is no bundle.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { dataFolder } from '../config/folders.js';
import type { Words } from './command.js';
import { runBundle } from './kept-code.js';

type Up = typeof import('./up.js');

export async function loadUp(words: Words): Promise<Up['up']> {
  const bundle = fileURLToPath(new URL('./up.bundle.js', import.meta.url));
  const { up } = existsSync(bundle)
    ? (runBundle(bundle, words.text('data-dir') ?? dataFolder(process.env)) as Up)
    : await import('./up.js');
  return up;
}
