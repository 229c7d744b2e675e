/** For files that run simulations: rejections that no code has handled count as wrong, and stacks are not collected. */
import { afterAll, beforeAll } from 'vitest';

/** Returns a function that takes the rejections since the last time, as sentences. */
export function watchUnhandled(keepsStacks: boolean): () => string[] {
  const unhandled: unknown[] = [];
  const onUnhandled = (reason: unknown) => void unhandled.push(reason);
  const { stackTraceLimit } = Error;
  beforeAll(() => {
    process.on('unhandledRejection', onUnhandled);
    // A simulation makes many errors, and collecting their stacks takes more time than all the rest.
    if (!keepsStacks) Error.stackTraceLimit = 0;
  });
  afterAll(() => {
    process.off('unhandledRejection', onUnhandled);
    Error.stackTraceLimit = stackTraceLimit;
  });
  return () => unhandled.splice(0).map((reason) => `unhandled: ${String(reason)}`);
}
