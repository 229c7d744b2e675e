/** The text of anything that can be thrown. Never throws itself: what was thrown may have no text, or a getter that throws. */
export function thrownText(thrown: unknown): string {
  try {
    return thrown instanceof Error ? String(thrown.message || thrown.name) : String(thrown);
  } catch {
    return typeof thrown;
  }
}
