/** The public names of Hostler. Names that are not listed here may change without notice. */

export type { KnownFacts, KnownList, KnownServer } from './catalog/catalog-server.js';
export type { Discovered, DiscoveredTool, DiscoverOptions } from './catalog/discovery.js';
export type { HostItem, HostTool, PinnedText } from './catalog/pinned-tools.js';
export type { ServerDefinition } from './config/server-definition.js';
export {
  type AttachedServerSpec,
  type ConfiguredServerSpec,
  parseServerSpec,
  type ServerSpec,
} from './config/server-spec.js';
export type { Reconfigured } from './host/configured-servers.js';
export type { CallForecast, Explanation } from './host/explain.js';
export type { Host } from './host/host.js';
export { type HostEvent, type HostEventKind, type HostEventOf, hostEventKinds } from './host/host-events.js';
export type {
  HostCallOptions,
  HostConfig,
  HostOptions,
  HostRequestOptions,
  JointChange,
  ListOptions,
  RelayOptions,
  ResourceResult,
  ToolResult,
} from './host/host-interface.js';
export type { AttachOptions, SpawnOptions } from './host/spawn.js';
export type { StatusRow, UnroutedTemplates } from './host/status.js';
export type { TelemetryConfig } from './host/tracing.js';
export { type Clock, systemClock } from './kernel/clock.js';
export {
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  type Execution,
  HostError,
  type HostErrorOptions,
  type SendPhase,
} from './kernel/errors.js';
export type { Random } from './kernel/random.js';
export { type CreateHostOptions, createHost } from './library/create-host.js';
export type { Guard, GuardRequest, Verdict } from './policy/allowlist.js';
export type { CacheStats } from './policy/cache.js';
export type { EraAnswer, Principal } from './policy/operation.js';
export type { PinStatus } from './policy/pin-records.js';
export type { AuthStatus, CallOutcome, CallRecord, PolicyEvent, ReplayReason } from './policy/policy-events.js';
export type { BudgetLeft, BudgetPlan } from './policy/rate-limit.js';
export type { AuthProvider, RecoverContext } from './session/auth/auth-provider.js';
export type { AuthLimits, AuthRecovery, RecoveryOutcome } from './session/auth/auth-recovery.js';
export { type ConnectOptions, Connector, type ConnectorOptions } from './session/connector.js';
export type { EraMemory } from './session/eras/eras.js';
export type { ClientIdentity, ServerFacts } from './session/eras/server-era.js';
export type { ListedItem, ListMethod, ServerList } from './session/lists.js';
export type { ProbeResult } from './session/liveness.js';
export type { RelayedParams } from './session/request-params.js';
export { RpcRefusal } from './session/rpc-response.js';
export type { ServerCard } from './session/server-card.js';
export type { CallOptions, Session, ToolArguments } from './session/session.js';
export type { Lease } from './supervisor/registry.js';
export type { SupervisorEvent } from './supervisor/supervisor-events.js';
export type {
  Attachable,
  AttachableServer,
  AttachableTransport,
  AttachFactory,
} from './transports/attached/attachable.js';
export type { AuthToken, TokenSource } from './transports/http/auth-token.js';
export { createMemoryLink, type MemoryLink, type MemoryServerEnd } from './transports/memory/memory-channel.js';
export type { ReapReport } from './transports/stdio/reaper.js';
export type { Channel, Era, JsonText } from './wire/channel.js';
export type { ChannelCounters } from './wire/envelope.js';
export type { InboundRequest } from './wire/inbound-requests.js';
export type {
  Answer,
  CauseHandlers,
  DeadlineExtension,
  InboundNotification,
  PeerHandlers,
} from './wire/peer-interface.js';
