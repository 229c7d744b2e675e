/** JSON-RPC's own error codes, and the names of MCP's notifications, as far as we send or look for them. */
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
  toolsChanged: 'notifications/tools/list_changed',
  promptsChanged: 'notifications/prompts/list_changed',
  resourcesChanged: 'notifications/resources/list_changed',
  resourceUpdated: 'notifications/resources/updated',
  elicitationComplete: 'notifications/elicitation/complete',
  acknowledged: 'notifications/subscriptions/acknowledged',
} as const;
