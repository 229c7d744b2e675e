/**
 * Finds the request that an oversized message answers, from the first or the last bytes of the message.
 * Libraries differ in where they put the id: before the result (Python, Go) or after it (the TypeScript SDK).
 * Not here: finding the first and last bytes (line-reader.ts), what becomes of the request (peer.ts).
 */

/** Bytes that are read at either end. */
export const oversizedEdgeBytes = 256;

/** `unnamed`: an answer that may still name its request at its end. `none`: no answer to any request. */
export type OversizedHead = number | 'unnamed' | 'none';

const version = String.raw`"jsonrpc"\s*:\s*"2\.0"`;
const id = String.raw`"id"\s*:\s*(\d{1,15})`;
const payload = String.raw`"(?:result|error)"\s*:`;
const namedHead = new RegExp(
  String.raw`^\uFEFF?\s*\{\s*(?:${version}\s*,\s*)?${id}\s*,\s*(?:${version}\s*,\s*)?${payload}`,
);
const unnamedHead = new RegExp(String.raw`^\uFEFF?\s*\{\s*(?:${version}\s*,\s*)?${payload}`);
// The last brace closes the message itself, and a string would end in a quote: an id right before it belongs to the message.
const namedTail = new RegExp(String.raw`,\s*${id}\s*(?:,\s*${version}\s*)?\}\s*$`);

export function oversizedHead(head: Buffer): OversizedHead {
  const text = head.toString('utf8');
  const found = namedHead.exec(text)?.[1];
  if (found !== undefined) return Number(found);
  return unnamedHead.test(text) ? 'unnamed' : 'none';
}

/** The id at the end of a message whose head is `unnamed`. */
export function oversizedTail(tail: Buffer): number | undefined {
  const found = namedTail.exec(tail.toString('utf8'))?.[1];
  return found === undefined ? undefined : Number(found);
}
