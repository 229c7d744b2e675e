/** Waits for a condition, not for time. The error names the condition. */
export async function eventually<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  limitMs = 30_000,
): Promise<T> {
  const untilMs = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > untilMs) throw new Error(`never came true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
