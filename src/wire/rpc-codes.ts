/** JSON-RPC's own error codes, as far as we send or look for them. */
export const RPC = { methodNotFound: -32601, internalError: -32603 } as const;
