/**
 * The script of the log's thread: beside this file in the compiled package, in `dist` for the sources (tests) and for the bundle
 * of `hostler up`. The bundle of the library replaces this file by one that contains the code of the thread, because a user's
 * bundler leaves no file beside it.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface ThreadStart {
  /** The path of the script, or its code if `isCode`. */
  readonly script: string;
  readonly isCode: boolean;
}

export function logThreadStart(): ThreadStart {
  const places = [
    './log-thread.js',
    '../broker/calls/sqlite/log-thread.js',
    '../../../../dist/broker/calls/sqlite/log-thread.js',
  ];
  const files = places.map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return { script: files.find((file) => existsSync(file)) ?? (files[0] as string), isCode: false };
}
