/**
 * Tells whether an entry of a configuration contains a secret as plain text, for the counts of the first screen.
 * Not here: redaction of secrets in output (kernel/redact.ts). This is a guess by names and shapes, and protects nothing.
 */
import { createRedactor } from '../kernel/redact.js';

export const secretName = /key|token|secret|pass|auth|credential|cookie/i;

/** Shorter values are modes and switches, such as `AUTH=none`. */
const charsMin = 8;
/** Placeholders, in the syntax of any client, and paths of files. */
const elsewhere = /^[/~]|[${%]/;

export function hasPlainSecret(entry: Readonly<Record<string, unknown>>): boolean {
  const { mask } = createRedactor();
  const { env, headers, args, url } = entry;
  const hasShape = (text: unknown): boolean => typeof text === 'string' && mask(text) !== text;
  const isNamed = ([name, value]: [string, unknown]): boolean =>
    typeof value === 'string' && secretName.test(name) && value.length >= charsMin && !elsewhere.test(value);
  const members = [env, headers].flatMap((table) => (typeof table === 'object' && table ? Object.entries(table) : []));
  return (
    members.some((member) => isNamed(member) || hasShape(member[1])) ||
    [url, ...(Array.isArray(args) ? args : [])].some(hasShape)
  );
}
