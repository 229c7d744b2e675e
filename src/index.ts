/** The public names of Hostler. What is not listed here may change without notice. */
export { parseServerSpec, type ServerSpec } from './config/server-spec.js';
export {
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  type Execution,
  HostError,
  type SendPhase,
} from './kernel/errors.js';
export type { ClientIdentity } from './session/client-identity.js';
export { type ConnectOptions, Connector, type ConnectorOptions } from './session/connector.js';
export type { ListedItem, ListMethod, ServerList } from './session/lists.js';
export type { ServerFacts } from './session/negotiate.js';
export { type OpenSessionOptions, openSession } from './session/open-session.js';
export type { CallOptions, Session } from './session/session.js';
export { createMemoryLink, type MemoryLink, type MemoryServerEnd } from './transports/memory/memory-channel.js';
export type { Channel, ChannelCounters, Era } from './wire/channel.js';
export type { InboundRequest } from './wire/inbound-request.js';
export type { Answer, InboundNotification, PeerHandlers } from './wire/peer.js';
