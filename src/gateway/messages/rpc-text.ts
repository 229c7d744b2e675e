/** JSON-RPC messages to clients, in parts: the bytes of a server stand between a head and a tail, and are not copied. */
import type { JsonText } from '../../wire/frame.js';
import type { RpcFailure } from '../exchange.js';

const tail = '}';

export const resultText = (idText: string, parts: readonly JsonText[]): JsonText[] => [
  `{"jsonrpc":"2.0","id":${idText},"result":`,
  ...parts,
  tail,
];

/** Without an id when the id of the request could not be read: MCP allows that, and its clients refuse `null`. */
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
