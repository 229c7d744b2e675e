/** Failures as JSON-RPC writes them: ours in the protocol's words, and as the text of one error object. */
import { ERRORS, type HostError } from '../../kernel/errors.js';
import { toBuffer } from '../../wire/json-check.js';
import type { RpcFailure } from '../exchange.js';

export const failureOf = (error: HostError): RpcFailure => ({
  code: ERRORS[error.code].rpc,
  message: error.message,
  data: JSON.stringify(error),
  httpStatus: ERRORS[error.code].http,
});

export function failureText({ code, message, data }: RpcFailure): string {
  const text = data === undefined || typeof data === 'string' ? data : toBuffer(data).toString('utf8');
  return `{"code":${code},"message":${JSON.stringify(message)}${text === undefined ? '' : `,"data":${text}`}}`;
}
