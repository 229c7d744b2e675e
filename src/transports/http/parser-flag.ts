/**
 * The V8 flag under which the HTTP parser of undici, which is WebAssembly, is not optimised. V8 needs 45 MB for a moment to do it,
 * and the allocator keeps some of it. Without that, RSS after a load of HTTP is 4 MB less, at the same CPU per call.
 * Invariant: a start without HTTP servers does not set it. Under other flags V8 rejects the code caches of Hostler and of Node's own
 * modules, and a start takes 10 to 16 % more CPU (Node 20 to 24).
 */
import { setFlagsFromString } from 'node:v8';

/** Call it before the first connection. After some hundred requests it is too late. */
export function keepParserSmall(): void {
  setFlagsFromString('--liftoff-only');
}

/** Runs under the flags of a start. V8 does not unset what the flag has implied. */
export function withStartFlags<T>(run: () => T): T {
  for (const flag of ['--no-liftoff-only', '--wasm-tier-up', '--wasm-dynamic-tiering']) setFlagsFromString(flag);
  try {
    return run();
  } finally {
    keepParserSmall();
  }
}
