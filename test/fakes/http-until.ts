/** Checks the condition after each turn of the event loop until it holds. The time limit of the test is the bound. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise<void>((resolve) => setImmediate(resolve));
}
