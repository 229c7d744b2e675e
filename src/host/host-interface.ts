/**
 * What goes into a Host and what comes out of it: the types an embedder meets.
 */

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
  /** What each role may call: `server/tool`, with `*` for all of either. Whoever embeds the host is under no role. */
  readonly roles?: Readonly<Record<string, { readonly allow: readonly string[] }>>;
  /** What becomes of a principal without a listed role; `deny` when there are roles. */
  readonly unlistedRole?: 'deny' | 'allow';
  /** How many calls a principal may make in a window of time: its own ceiling, else that of its role. */
  readonly budgets?: {
    readonly principals?: Readonly<Record<string, CeilingEntry>>;
    readonly roles?: Readonly<Record<string, CeilingEntry>>;
  };
  /** Named subsets of the servers. */
  readonly groups?: Readonly<Record<string, readonly string[]>>;
  /** For the gateway, which takes them from here; the host itself only checks them. */
  readonly keys?: Readonly<Record<string, unknown>>;
  readonly listen?: Readonly<Record<string, unknown>>;
  readonly log?: Readonly<Record<string, unknown>>;
  /** For the broker, likewise. */
  readonly broker?: Readonly<Record<string, unknown>>;
  /** For editors. */
  readonly $schema?: string;
}

interface CeilingEntry {
  readonly calls: number;
  readonly window: number | string;
}

/** What changes in the same tick as the configuration of a host. Both steps are prepared before, so that neither can fail. */
export interface JointChange {
  /** Called when the new rules hold. Must not notify any client yet: the servers are still the old ones. */
  readonly swap: () => void;
  /** Called when the servers are the new ones: now clients may be notified. */
  readonly announce: () => void;
}

export interface HostOptions {
  readonly client?: ConnectorOptions['client'];
  readonly stateDir?: string;
  /** Files and folders that servers in a sandbox never see, beside `stateDir`, such as the file of the configuration. */
  readonly hiddenPaths?: readonly string[];
  readonly ambient?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly random?: Random;
  /** Where the tokens of a server over HTTP come from; undefined: from the `headers` of its definition, as they are. */
  readonly authProvider?: (server: ServerDefinition) => AuthProvider | undefined;
  /**
   * Starts servers whose tools were never seen once in the background, a few at a time, to learn them. When absent: off, until a
   * gateway or a broker lists the tools of this host. `false` keeps it off: then they list a server's tools after its first start.
   */
  readonly learnAtBoot?: boolean;
  /** Shared with whoever shows texts of servers beside the host: what either knows to be secret, both take out. */
  readonly redactor?: Redactor;
  /** An entry of the configuration that could not be used, or something that went wrong beside a call. */
  readonly onProblem?: (error: unknown) => void;
}

/**
 * What a gateway relays beside a request's own words. Texts are JSON written without the braces around it, `"a":1,"b":2`;
 * whoever hands them over answers for them being that.
 */
export interface RelayOptions {
  /** Arguments are part of a message that was scanned as a whole: they are one JSON object, and not looked at again. */
  readonly areArgumentsScanned?: boolean;
  /** Members of the caller's `_meta`. The keys of the envelope and `progressToken` are never among them. */
  readonly meta?: string | undefined;
  /** Further members of `params`, such as `inputResponses` and `requestState`. A call that has any is neither kept nor shared. */
  readonly members?: string | undefined;
  /** What a modern server is told that its client can do, instead of what this host can: one JSON object. */
  readonly capabilities?: string | undefined;
  /** The server asks for something, and this request is surely the cause. Whoever is told answers it. */
  readonly onServerRequest?: ((request: InboundRequest) => void) | undefined;
  /** What else the server says that surely belongs to this request, such as logs. Progress goes to `onProgress`. */
  readonly onServerNotification?: ((method: string, params: Buffer | undefined) => void) | undefined;
  /** The client, for a server with `isolation: "per-client"`, which needs one: each has its own process. Shared servers ignore it. */
  readonly instance?: string | undefined;
}

export interface HostCallOptions extends RelayOptions {
  readonly principal?: Principal | undefined;
  readonly signal?: CancelSignal | undefined;
  /** How long it may take from now, waiting included. Absent: as long as its server may be silent, progress moving that, at most 10 min. */
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

/** Of a call that has none: known by itself, so that it is not looked through. */
export const noCallOptions: HostCallOptions = Object.freeze({});

/** What a tool answered. */
export interface ToolResult {
  /** The result object as the server wrote it. */
  readonly bytes: Buffer;
  readonly isError: boolean;
  /** In whose words it is written. */
  readonly era: Era;
  json(): unknown;
}

export interface ListOptions {
  readonly principal?: Principal;
  readonly signal?: CancelSignal;
  /** How long it may take from now, waiting included; 10 s for a list and 60 s for a resource when absent. */
  readonly deadlineMs?: number;
}

/** What a server answered to `resources/read`. */
export interface ResourceResult {
  readonly server: string;
  readonly uri: string;
  /** The result object as the server wrote it. */
  readonly bytes: Buffer;
  json(): unknown;
}
