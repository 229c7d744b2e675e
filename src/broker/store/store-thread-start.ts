/**
 * What the store's thread is started from: a file of JavaScript. It is ours when we are compiled, that of the build when we are run
 * from the sources, as tests are, or are part of the one script that `hostler up` is. The bundle of the library has another version
 * of this file, which holds the thread's code itself: a bundler that moves our code leaves no file beside it.
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
