/** Types of a host's options, arguments and results. */

import type { ServerDefinition } from '../config/server-definition.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import type { Random } from '../kernel/random.js';
import type { Redactor } from '../kernel/redact.js';
import type { Principal } from '../policy/operation.js';
import type { AuthProvider } from '../session/auth/auth-provider.js';
import type { ConnectorOptions } from '../session/connector.js';
import type { Era } from '../wire/channel.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import type { TelemetryConfig } from './tracing.js';

/** As in `hostler.json`, already parsed. */
export interface HostConfig {
  readonly mcpServers?: Readonly<Record<string, unknown>>;
  readonly telemetry?: TelemetryConfig;
  /** What each role may call: `server/tool`, with `*` for all of either. The embedding application has no role. */
  readonly roles?: Readonly<Record<string, { readonly allow: readonly string[] }>>;
  /** For principals without a listed role; default `deny` when there are roles. */
  readonly unlistedRole?: 'deny' | 'allow';
  /** Calls per time window: of the principal, otherwise of its role. */
  readonly budgets?: {
    readonly principals?: Readonly<Record<string, RateLimitEntry>>;
    readonly roles?: Readonly<Record<string, RateLimitEntry>>;
  };
  /** Server names by group. */
  readonly groups?: Readonly<Record<string, readonly string[]>>;
  /** For the gateway; the host only checks them. */
  readonly keys?: Readonly<Record<string, unknown>>;
  readonly listen?: Readonly<Record<string, unknown>>;
  readonly log?: Readonly<Record<string, unknown>>;
  /** For the broker, likewise. */
  readonly broker?: Readonly<Record<string, unknown>>;
  /** For editors. */
  readonly $schema?: string;
}

interface RateLimitEntry {
  readonly calls: number;
  readonly window: number | string;
}

/** Changes in the same tick as the configuration of a host. Both steps are prepared before, so that neither can fail. */
export interface JointChange {
  /** The new rules hold, with the old servers: no client may be notified yet. */
  readonly swap: () => void;
  /** Rules and servers are new: clients may be notified. */
  readonly announce: () => void;
}

export interface HostOptions {
  readonly client?: ConnectorOptions['client'];
  readonly stateDir?: string;
  /** Files and folders that are hidden from sandboxed servers, beside `stateDir`, such as the configuration file. */
  readonly hiddenPaths?: readonly string[];
  readonly ambient?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly random?: Random;
  /** Source of tokens for servers over HTTP; default: the `headers` of the definition. */
  readonly authProvider?: (server: ServerDefinition) => AuthProvider | undefined;
  /**
   * Starts servers whose tools are unknown once in the background, a few at a time, to list them. Default: when a gateway or a broker
   * lists the tools of this host. `false`: never; a server's tools are listed after its first start.
   */
  readonly learnAtBoot?: boolean;
  /** May be shared with other parts of the application: each redacts the secrets of all. */
  readonly redactor?: Redactor;
  /** Invalid configuration entries, and failures outside of calls. */
  readonly onProblem?: (error: unknown) => void;
}

/** What a gateway relays beside the arguments. Texts are members of a JSON object without the braces, `"a":1,"b":2`, and not checked. */
export interface RelayOptions {
  /** The arguments are known to be one JSON object: they are not scanned again. */
  readonly areArgumentsScanned?: boolean;
  /** Members of the caller's `_meta`, without the envelope's keys and `progressToken`. */
  readonly meta?: string | undefined;
  /** Further members of `params`, such as `inputResponses`. Such a call is neither cached nor shared. */
  readonly members?: string | undefined;
  /** Client capabilities for a modern server, instead of the host's: one JSON object. */
  readonly capabilities?: string | undefined;
  /** A request of the server that this request has certainly caused. The callback answers it. */
  readonly onServerRequest?: ((request: InboundRequest) => void) | undefined;
  /** Other notifications that certainly belong to this request, such as logs. Progress goes to `onProgress`. */
  readonly onServerNotification?: ((method: string, params: Buffer | undefined) => void) | undefined;
  /** The client; required for servers with `isolation: "per-client"`, ignored by shared ones. */
  readonly instance?: string | undefined;
}

export interface HostCallOptions extends RelayOptions {
  readonly principal?: Principal | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Time limit from now, queueing included. Default: the silence limit of the server, extended by progress, at most 10 min. */
  readonly deadlineMs?: number;
  readonly idempotencyKey?: string;
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly attempt?: number;
}

/** A request other than a tool call, such as `prompts/get` or `completion/complete`. */
export interface HostRequestOptions extends RelayOptions {
  readonly principal?: Principal | undefined;
  readonly signal?: CancelSignal | undefined;
  readonly deadlineMs?: number;
  readonly onProgress?: ((params: Buffer) => void) | undefined;
}

/** One object for calls without options: recognised by identity. */
export const noCallOptions: HostCallOptions = Object.freeze({});

export interface ToolResult {
  /** The result object as JSON of the server. */
  readonly bytes: Buffer;
  readonly isError: boolean;
  /** Protocol era of the server. */
  readonly era: Era;
  json(): unknown;
}

export interface ListOptions {
  readonly principal?: Principal;
  readonly signal?: CancelSignal;
  /** Time limit from now, queueing included; default 10 s for a list and 60 s for a resource. */
  readonly deadlineMs?: number;
}

export interface ResourceResult {
  readonly server: string;
  readonly uri: string;
  /** The result object as JSON of the server. */
  readonly bytes: Buffer;
  json(): unknown;
}
