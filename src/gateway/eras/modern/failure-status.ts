/** Which status of HTTP goes with a failure of JSON-RPC. */
import { MODERN_ERRORS } from '../../../session/eras/modern/protocol.js';
import { RPC } from '../../../wire/rpc-codes.js';
import type { RpcFailure } from '../../exchange.js';

/** All that is not here was understood and answered: 200. */
const STATUS: Readonly<Record<number, number>> = {
  [RPC.parseError]: 400,
  [RPC.invalidRequest]: 400,
  [RPC.methodNotFound]: 404,
  [MODERN_ERRORS.headerMismatch]: 400,
  [MODERN_ERRORS.missingCapability]: 400,
  [MODERN_ERRORS.unsupportedVersion]: 400,
};

/** Modern era: what HTTP says of a failure. Legacy clients read a 404 as the end of their session and are told 200. */
export const statusOf = ({ code, httpStatus }: RpcFailure): number => httpStatus ?? STATUS[code] ?? 200;
