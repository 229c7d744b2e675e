/**
 * The JSON-RPC texts that go to clients, in parts: what a server answered is put between a head and a tail and never copied
 * into a string.
 * Not here: writing them out (http/, stdio/), what a failure says (failures.ts).
 */
import type { JsonText } from '../../wire/frame.js';
import type { RpcFailure } from '../exchange.js';

const tail = '}';

export const resultText = (idText: string, parts: readonly JsonText[]): JsonText[] => [
  `{"jsonrpc":"2.0","id":${idText},"result":`,
  ...parts,
  tail,
];

/**
 * Without an id where the request's own could not be read: MCP allows an error response to have none, and its clients refuse
 * the `null` of plain JSON-RPC.
 */
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
