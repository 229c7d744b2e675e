/** Messages of clients of both eras. */
export type Json = Record<string, unknown>;

export const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};

export const modern = (id: unknown, method: string, params: Json = {}) => ({
  jsonrpc: '2.0',
  id,
  method,
  params: { ...params, _meta: META },
});

export const legacy = (id: unknown, method: string, params?: Json) => ({ jsonrpc: '2.0', id, method, params });

export const initialize = (id: unknown = 0, protocolVersion = '2025-11-25', capabilities: Json = {}) =>
  legacy(id, 'initialize', { protocolVersion, capabilities, clientInfo: { name: 'c', version: '1' } });

export const notice = (method: string, params?: Json) => ({ jsonrpc: '2.0', method, params });
