/**
 * undici, loaded when the first connection is made: most hosts have only servers that are processes, and it costs more to
 * load than all of ours.
 * Invariant: at once, not in a tick to come, so that a channel is there when it is asked for.
 */
import { createRequire } from 'node:module';

let loaded: typeof import('undici') | undefined;

export function undici(): typeof import('undici') {
  loaded ??= createRequire(import.meta.url)('undici') as typeof import('undici');
  return loaded;
}
