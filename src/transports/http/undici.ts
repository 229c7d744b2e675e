/** Loads undici with the first connection: most hosts only run processes, and undici loads slower than all of Hostler. */
import { requireUndici, type Undici } from './require-undici.js';

let loaded: Undici | undefined;

/** Must be awaited before a channel is opened, because a bundle can load undici only asynchronously. */
export async function loadUndici(): Promise<void> {
  loaded ??= requireUndici() ?? (await import('undici'));
}

export function undici(): Undici {
  loaded ??= requireUndici();
  if (loaded === undefined) throw new Error('undici is used before loadUndici()');
  return loaded;
}
