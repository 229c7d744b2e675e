/**
 * undici, loaded when the first connection is made: most hosts have only servers that are processes, and it costs more to
 * load than all of ours.
 */
import { requireUndici } from './require-undici.js';

/** What is used of it; the bundle of the library holds no more (scripts/bundle-library.mjs). */
type Undici = Pick<typeof import('undici'), 'Pool' | 'buildConnector'>;

let loaded: Undici | undefined;

/** To be awaited before a channel is opened: in a bundle there is no other way to load it. */
export async function loadUndici(): Promise<void> {
  loaded ??= requireUndici() ?? (await import('undici'));
}

/** At once, so that a channel is there when it is asked for. */
export function undici(): Undici {
  loaded ??= requireUndici();
  if (loaded === undefined) throw new Error('undici is used before it was loaded');
  return loaded;
}
