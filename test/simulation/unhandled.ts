/** For files that run simulations: unhandled rejections count as violations, and stacks are not collected. */
import { afterAll, beforeAll } from 'vitest';

/** Returns a function that returns the rejections since its last call as text. */
export function watchUnhandled(keepsStacks: boolean): () => string[] {
  const unhandled: unknown[] = [];
  const onUnhandled = (reason: unknown) => void unhandled.push(reason);
  const { stackTraceLimit } = Error;
  beforeAll(() => {
    process.on('unhandledRejection', onUnhandled);
    // A simulation creates many errors, and collecting their stacks would take most of its time.
    if (!keepsStacks) Error.stackTraceLimit = 0;
  });
  afterAll(() => {
    process.off('unhandledRejection', onUnhandled);
    Error.stackTraceLimit = stackTraceLimit;
  });
  return () => unhandled.splice(0).map((reason) => `unhandled: ${String(reason)}`);
}
