/**
 * An error that is thrown while a server is opened and is no HostError, as a HostError that says what it was.
 * Invariant: the text of the cause is redacted and neutralised before it is part of a message; the cause itself is kept.
 */
import { HostError, thrownText } from '../kernel/errors.js';
import type { Redact } from '../kernel/redact.js';
import { neutraliseLine } from '../kernel/terminal-text.js';

const causeChars = 500;

/** `clean` knows the secrets of the host; without it only the kind of the error is shown. */
export function unexpectedError(server: string, cause: unknown, clean?: Redact): HostError {
  const text = neutraliseLine(clean ? clean(textOf(cause)) : kindOf(cause), causeChars);
  return new HostError('connect_failed', `server '${server}' could not be opened: unexpected error: ${text}`, {
    server,
    reason: 'unexpected',
    execution: 'not_executed',
    hint: 'this is a mistake in Hostler or in code it was handed: report it with this message',
    cause,
  });
}

function kindOf(thrown: unknown): string {
  try {
    return thrown instanceof Error ? String(thrown.name) : typeof thrown;
  } catch {
    return typeof thrown;
  }
}

const textOf = (thrown: unknown): string =>
  thrown instanceof Error ? `${kindOf(thrown)}: ${thrownText(thrown)}` : thrownText(thrown);
