/** JSON-RPC's own error codes, and the names of MCP's notifications and of one request, as far as we send or look for them. */
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

/** Modern: the request that is answered with what there is to tell of one's own accord, for as long as it is open. */
export const listenMethod = 'subscriptions/listen';

/** Requests that open or check a session. A server answers them at once, so they say nothing about how long a call may take. */
export const isSessionRequest = (method: string | undefined): boolean =>
  method === 'ping' || method === 'initialize' || method === 'server/discover';
