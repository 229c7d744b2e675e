/**
 * The JavaScript file that the store's thread is started from: beside this one in the compiled package, in `dist` for the sources
 * (tests) and for the one script of `hostler up`. The bundle of the library replaces this file by one that holds the code of the
 * thread: a bundler that moves our code leaves no file beside it.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface ThreadStart {
  /** A path, or code where `isCode`. */
  readonly script: string;
  readonly isCode: boolean;
}

export function storeThreadStart(): ThreadStart {
  const places = ['./store-thread.js', '../broker/store/store-thread.js', '../../../dist/broker/store/store-thread.js'];
  const files = places.map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return { script: files.find((file) => existsSync(file)) ?? (files[0] as string), isCode: false };
}
