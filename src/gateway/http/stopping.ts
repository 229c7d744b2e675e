import { ERRORS } from '../../kernel/errors.js';
import type { RpcFailure } from '../exchange.js';

/** What a request is told that is still open, or comes in, when we end. */
export const stopping: RpcFailure = {
  code: ERRORS.overloaded.rpc,
  message: 'hostler is stopping; send the request again when it is back',
  httpStatus: 503,
};
