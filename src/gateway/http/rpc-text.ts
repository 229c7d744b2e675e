/**
 * The JSON-RPC texts that go to clients, in parts: what a server answered is put between a head and a tail and never copied
 * into a string.
 */
import type { JsonText } from '../../wire/frame.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { RpcFailure } from '../exchange.js';

const tail = '}';

export const resultText = (idText: string, parts: readonly JsonText[]): JsonText[] => [
  `{"jsonrpc":"2.0","id":${idText},"result":`,
  ...parts,
  tail,
];

/** Without an id where the request's own could not be read. */
export const failureText = (idText: string, { code, message, data }: RpcFailure): JsonText[] => {
  const head = `{"jsonrpc":"2.0","id":${idText},"error":{"code":${code},"message":${JSON.stringify(message)}`;
  return data === undefined ? [`${head}}}`] : [`${head},"data":`, data, '}}'];
};

export const notificationText = (method: string, params: JsonText | undefined): JsonText[] => {
  const head = `{"jsonrpc":"2.0","method":${JSON.stringify(method)}`;
  return params === undefined ? [head, tail] : [`${head},"params":`, params, tail];
};

export const requestText = (id: number, method: string, params: JsonText | undefined): JsonText[] => {
  const head = `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)}`;
  return params === undefined ? [head, tail] : [`${head},"params":`, params, tail];
};

/** All that is not here was understood and answered: 200. */
const STATUS: Readonly<Record<number, number>> = {
  [RPC.parseError]: 400,
  [RPC.invalidRequest]: 400,
  [RPC.methodNotFound]: 404,
  [-32020]: 400,
  [-32021]: 400,
  [-32022]: 400,
};

/** Modern era: what HTTP says of a failure. Legacy clients read a 404 as the end of their session and are told 200. */
export const statusOf = ({ code, httpStatus }: RpcFailure): number => httpStatus ?? STATUS[code] ?? 200;
