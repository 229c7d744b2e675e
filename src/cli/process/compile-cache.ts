/**
 * Node's compile cache (Node >= 22.1), in the data directory: the first list takes 19 % less CPU on Node 22 (144 ms, not 178).
 * Invariant: cached code runs before anything is confirmed, so the cache folder must not be writable for other users.
 */
import { mkdirSync } from 'node:fs';
import module from 'node:module';
import path from 'node:path';
import { ownDataFolder } from '../../config/folders.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';

interface CompileCache {
  readonly enableCompileCache?: (folder: string) => unknown;
  readonly flushCompileCache?: () => void;
}

const cache = module as CompileCache;

export function useCompileCache(dataDir: string | undefined): void {
  const folder = cacheFolder(dataDir, process.env);
  if (folder === undefined || !cache.enableCompileCache) return;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    requireTrusted(path.dirname(folder));
    requireTrusted(folder);
    cache.enableCompileCache(folder);
  } catch {
    // Without a cache the start is only slower.
  }
}

/** Writes the cache now instead of at exit. */
export const flushCompileCache = (): void => cache.flushCompileCache?.();

/** Never uses a relative folder, because a repository could contain it. */
export function cacheFolder(dataDir: string | undefined, env: NodeJS.ProcessEnv): string | undefined {
  const folder = dataDir !== undefined && path.isAbsolute(dataDir) ? dataDir : ownDataFolder(env);
  return folder === undefined ? undefined : path.join(folder, 'compile-cache');
}
