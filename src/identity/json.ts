/** Reads JSON that another program or another process has written. */

export type JsonObject = Readonly<Record<string, unknown>>;

/** Undefined: not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Undefined: not the JSON of an object. */
export function objectOf(body: Buffer): JsonObject | undefined {
  const value = parseJson(body.toString('utf8'));
  return isObject(value) ? value : undefined;
}
