/** Builds JSON-RPC messages as lists of parts, so that the bytes of a server are not copied. */
import type { JsonText } from '../../wire/frame.js';
import type { RpcFailure } from '../exchange.js';

const tail = '}';

export const resultText = (idText: string, parts: readonly JsonText[]): JsonText[] => [
  `{"jsonrpc":"2.0","id":${idText},"result":`,
  ...parts,
  tail,
];

/** Omits an undefined id, which could not be read from the request. MCP allows that, and its clients refuse `null`. */
export const failureText = (idText: string | undefined, { code, message, data }: RpcFailure): JsonText[] => {
  const id = idText === undefined ? '' : `"id":${idText},`;
  const head = `{"jsonrpc":"2.0",${id}"error":{"code":${code},"message":${JSON.stringify(message)}`;
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
