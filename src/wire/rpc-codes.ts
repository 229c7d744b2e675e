/** Error codes of JSON-RPC, and method names of MCP. */
export const RPC = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
} as const;

export const NOTIFICATION = {
  initialized: 'notifications/initialized',
  progress: 'notifications/progress',
  cancelled: 'notifications/cancelled',
  message: 'notifications/message',
  toolsChanged: 'notifications/tools/list_changed',
  promptsChanged: 'notifications/prompts/list_changed',
  resourcesChanged: 'notifications/resources/list_changed',
  resourceUpdated: 'notifications/resources/updated',
  elicitationComplete: 'notifications/elicitation/complete',
  acknowledged: 'notifications/subscriptions/acknowledged',
} as const;

/** Modern era: the request that stays open and receives notifications of the server. */
export const listenMethod = 'subscriptions/listen';

/** Requests that open or check a session. Servers answer them at once, so their latency says nothing about calls. */
export const isSessionRequest = (method: string | undefined): boolean =>
  method === 'ping' || method === 'initialize' || method === 'server/discover';
