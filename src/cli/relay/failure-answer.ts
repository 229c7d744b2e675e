/**
 * Answers of the relay itself, in the shapes that the gateway gives failures (gateway/messages/failures.ts). The gateway is not
 * imported, because it would make the relay several times larger.
 */
import { ERRORS, type HostError } from '../../kernel/errors.js';
import { META } from '../../session/eras/modern/protocol.js';
import { version } from '../version.js';

/** One line without its end. A failed call is a tool result; any other failed request is an error. */
export function failureAnswer(idText: string, method: string, isModern: boolean, error: HostError): string {
  const { code, hint, retryable } = error;
  const { tool, reason } = error.details;
  const text = `${error.message}${hint === undefined ? '' : `; ${hint}`}.`;
  if (method !== 'tools/call') {
    const failure = { code: ERRORS[code].rpc, message: text, data: { code, retryable, reason } };
    return `{"jsonrpc":"2.0","id":${idText},"error":${JSON.stringify(failure)}}`;
  }
  const result = {
    ...(isModern ? { resultType: 'complete' } : {}),
    content: [{ type: 'text', text }],
    isError: true,
    _meta: {
      ...(isModern ? { [META.serverInfo]: { name: 'hostler', version } } : {}),
      'hostler/error': { code, retryable, tool, reason },
    },
  };
  return `{"jsonrpc":"2.0","id":${idText},"result":${JSON.stringify(result)}}`;
}
