/**
 * The methods that clients send, one row each: the part of the gateway that handles the method, and facts for forwarding it.
 * A method that is only forwarded to its server needs one row with `handledBy: 'passthrough'` and its `target`.
 * Not here: the `isEraSpecific` methods of each era (gateway/eras/).
 */
export type Method = PassthroughMethod | OtherMethod;

/** A method that is only forwarded to its server. */
export interface PassthroughMethod extends MethodFacts {
  readonly handledBy: 'passthrough';
  /** Kind of thing that the params name. It decides which server gets the request. */
  readonly target: 'prompt' | 'resource' | 'reference';
}

interface OtherMethod extends MethodFacts {
  /** Part of the gateway that handles the method. Absent: the gateway refuses it as unknown. */
  readonly handledBy?: 'call' | 'list' | 'handshake' | 'ping' | 'logLevel' | 'subscribe' | 'unsubscribe' | 'listen';
}

interface MethodFacts {
  /** Only an era that has the method in its `ownMethods` supports it. */
  readonly isEraSpecific?: true;
  /** Member of params that a modern client repeats in the header `Mcp-Name`. */
  readonly nameMember?: 'name' | 'uri' | 'taskId';
  /** Housekeeping of the connection: no server request or log line is attributed to it. */
  readonly isHousekeeping?: true;
  /** A modern server may answer it with `input_required`. */
  readonly mayRequireInput?: true;
  /** A modern result states how long it may be cached. */
  readonly isCacheable?: true;
  /** Has no lasting effect. If the host of a relay is lost before it answers, the next host gets the request again. */
  readonly isRepeatable?: true;
}

/** Modern era: the request that stays open and receives notifications of the server. */
export const listenMethod = 'subscriptions/listen';

/** Requests about the connection itself, which each era has in its own form. */
const connectionFacts = { isEraSpecific: true, isHousekeeping: true, isRepeatable: true } as const;

export const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  ['tools/call', { handledBy: 'call', nameMember: 'name', mayRequireInput: true }],
  ['tools/list', { handledBy: 'list', isHousekeeping: true, isRepeatable: true }],
  ['prompts/list', { handledBy: 'list', isHousekeeping: true, isRepeatable: true }],
  ['resources/list', { handledBy: 'list', isHousekeeping: true, isRepeatable: true }],
  ['resources/templates/list', { handledBy: 'list', isHousekeeping: true, isRepeatable: true }],
  [
    'prompts/get',
    { handledBy: 'passthrough', target: 'prompt', nameMember: 'name', mayRequireInput: true, isRepeatable: true },
  ],
  [
    'resources/read',
    {
      handledBy: 'passthrough',
      target: 'resource',
      nameMember: 'uri',
      mayRequireInput: true,
      isCacheable: true,
      isRepeatable: true,
    },
  ],
  ['completion/complete', { handledBy: 'passthrough', target: 'reference', isRepeatable: true }],
  ['initialize', { handledBy: 'handshake', ...connectionFacts }],
  ['server/discover', { handledBy: 'handshake', ...connectionFacts }],
  ['ping', { handledBy: 'ping', ...connectionFacts }],
  ['logging/setLevel', { handledBy: 'logLevel', ...connectionFacts }],
  ['resources/subscribe', { handledBy: 'subscribe', ...connectionFacts }],
  ['resources/unsubscribe', { handledBy: 'unsubscribe', ...connectionFacts }],
  [listenMethod, { handledBy: 'listen', ...connectionFacts }],
  ['tasks/get', { nameMember: 'taskId' }],
  ['tasks/update', { nameMember: 'taskId' }],
  ['tasks/cancel', { nameMember: 'taskId' }],
]);

/** Error codes of JSON-RPC. */
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

/** Requests that open or check a session. Servers answer them at once, so their latency says nothing about calls. */
export const isSessionRequest = (method: string | undefined): boolean =>
  method === 'ping' || method === 'initialize' || method === 'server/discover';
