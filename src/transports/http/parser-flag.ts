/**
 * Turns off V8's optimising compiler for WebAssembly, in which undici's HTTP parser is written. Optimising the parser would take
 * 45 MB for a moment, and the allocator keeps some of them. With the flag, RSS after a load of HTTP is 4 MB less, at the same CPU
 * per call.
 * Invariant: a start without HTTP servers does not set the flag. V8 rejects code caches that were made under other flags.
 * Without the caches of Hostler and of Node's own modules, a start would take 10 to 16 % more CPU (Node 20 to 24).
 */
import { setFlagsFromString } from 'node:v8';

/** Call it before the first connection. After a few hundred requests it is too late. */
export function keepParserSmall(): void {
  setFlagsFromString('--liftoff-only');
}

/** Calls `run` with the flags that V8 has at a start. `--liftoff-only` also changes two other flags, which V8 does not change back. */
export function withStartFlags<T>(run: () => T): T {
  for (const flag of ['--no-liftoff-only', '--wasm-tier-up', '--wasm-dynamic-tiering']) setFlagsFromString(flag);
  try {
    return run();
  } finally {
    keepParserSmall();
  }
}
