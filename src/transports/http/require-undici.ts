/**
 * Loads only the parts of undici that Hostler uses, synchronously from its installed location. All of undici would take 8.7 MB
 * more memory and 88 more files. The bundle of the library replaces this file with one that returns undefined, because
 * bundlers do not follow a `require` made by createRequire. Then undici.ts loads undici with an import.
 */
import { createRequire } from 'node:module';
import { keepParserSmall } from './parser-flag.js';

export type Undici = Pick<typeof import('undici'), 'Pool' | 'buildConnector'>;

export function requireUndici(): Undici | undefined {
  const require = createRequire(import.meta.url);
  const parts = {
    Pool: require('undici/lib/dispatcher/pool.js'),
    buildConnector: require('undici/lib/core/connect.js'),
  };
  // Called after Node's own modules were loaded: their code caches are not valid under the flag.
  keepParserSmall();
  return parts;
}
