/**
 * Finds the id of an oversized answer in its first or last bytes. Libraries put the id before the result (Python, Go) or after
 * it (the TypeScript SDK).
 * Not here: collecting these bytes (line-reader.ts), settling the request (peer.ts).
 */

export const oversizedEdgeBytes = 256;

/** `unnamed`: an answer whose id may be at its end. `none`: not an answer. */
export type OversizedHead = number | 'unnamed' | 'none';

const version = String.raw`"jsonrpc"\s*:\s*"2\.0"`;
const id = String.raw`"id"\s*:\s*(\d{1,15})`;
const payload = String.raw`"(?:result|error)"\s*:`;
const namedHead = new RegExp(
  String.raw`^\uFEFF?\s*\{\s*(?:${version}\s*,\s*)?${id}\s*,\s*(?:${version}\s*,\s*)?${payload}`,
);
const unnamedHead = new RegExp(String.raw`^\uFEFF?\s*\{\s*(?:${version}\s*,\s*)?${payload}`);
// The last brace closes the message, and a string would end in a quote. So an id right before the brace belongs to the message.
const namedTail = new RegExp(String.raw`,\s*${id}\s*(?:,\s*${version}\s*)?\}\s*$`);

export function oversizedHead(head: Buffer): OversizedHead {
  const text = head.toString('utf8');
  const found = namedHead.exec(text)?.[1];
  if (found !== undefined) return Number(found);
  return unnamedHead.test(text) ? 'unnamed' : 'none';
}

export function oversizedTail(tail: Buffer): number | undefined {
  const found = namedTail.exec(tail.toString('utf8'))?.[1];
  return found === undefined ? undefined : Number(found);
}
