/** Calls `run` for all items in order, at most `max` concurrently. `run` must not reject. */
export async function eachOf<T>(
  items: readonly T[],
  max: number,
  run: (item: T, i: number) => Promise<void>,
): Promise<void> {
  const rest = items.entries();
  const worker = async () => {
    for (const [i, item] of rest) await run(item, i);
  };
  await Promise.all(Array.from({ length: Math.min(max, items.length) }, worker));
}
