/** Looks again after each turn of the event loop until the condition holds. The test's own time limit is the bound. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise<void>((resolve) => setImmediate(resolve));
}
