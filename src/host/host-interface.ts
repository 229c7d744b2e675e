/** Types of a host's options, arguments and results. */

import type { ServerDefinition } from '../config/server-definition.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { CallRelay, CallResult, Principal } from '../policy/operation.js';
import type { AuthProvider } from '../session/auth/auth-provider.js';
import type { ConnectorOptions } from '../session/connector.js';
import type { TelemetryConfig } from './tracing.js';

/** Content of `hostler.json` after parsing. */
export interface HostConfig {
  readonly mcpServers?: Readonly<Record<string, unknown>>;
  readonly telemetry?: TelemetryConfig;
  /** Tools that each role may call, as `server/tool`; `*` matches every name. The embedding application has no role. */
  readonly roles?: Readonly<Record<string, { readonly allow: readonly string[] }>>;
  /** Treatment of principals without a listed role; default `deny` if roles are configured. */
  readonly unlistedRole?: 'deny' | 'allow';
  /** Calls per time window. An entry of the principal overrides the entry of its role. */
  readonly budgets?: {
    readonly principals?: Readonly<Record<string, RateLimitEntry>>;
    readonly roles?: Readonly<Record<string, RateLimitEntry>>;
  };
  readonly groups?: Readonly<Record<string, readonly string[]>>;
  /** The gateway uses `keys`, `listen` and `log`; the host only validates them. */
  readonly keys?: Readonly<Record<string, unknown>>;
  readonly listen?: Readonly<Record<string, unknown>>;
  readonly log?: Readonly<Record<string, unknown>>;
  /** The broker uses this; the host only validates it. */
  readonly broker?: Readonly<Record<string, unknown>>;
  /** Commands of references to secrets. Used only if the host has `secrets` (HostOptions). */
  readonly secrets?: Readonly<Record<string, unknown>>;
  /** The command line uses this; the host only validates it. */
  readonly identity?: Readonly<Record<string, unknown>>;
  /** Used by editors only. */
  readonly $schema?: string;
}

interface RateLimitEntry {
  readonly calls: number;
  readonly window: number | string;
}

/** Steps in the same tick as a configuration change. The caller prepares both so that they cannot fail. */
export interface JointChange {
  /** Runs when the rules are new and the servers are still old: it must not notify clients. */
  readonly swap: () => void;
  /** Runs when rules and servers are new; it may notify clients. */
  readonly announce: () => void;
}

type ConnectorPart = 'client' | 'stateDir' | 'hiddenPaths' | 'ambient' | 'clock' | 'random' | 'redactor' | 'secrets';

/** `redactor` may be shared with other parts of the application; then each part redacts the secrets of all parts. */
export interface HostOptions extends Partial<Pick<ConnectorOptions, ConnectorPart>> {
  /** Source of tokens for servers over HTTP; default: the `headers` of the definition. */
  readonly authProvider?: (server: ServerDefinition) => AuthProvider | undefined;
  /**
   * Starts each server with unknown tools once in the background, a few at a time, to list its tools. Default: only if a
   * gateway or a broker lists the tools of this host. `false`: tools are listed after the first start of their server.
   */
  readonly learnAtBoot?: boolean;
  /** Receives invalid configuration entries and failures outside of calls. */
  readonly onProblem?: (error: unknown) => void;
}

export interface RelayOptions extends CallRelay {
  /** True if the caller has checked everything: names are strings, and the arguments are the text of one JSON object. */
  readonly isChecked?: boolean;
}

export interface HostCallOptions extends RelayOptions {
  readonly principal?: Principal | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Time limit from now, queueing included. Default: `timeouts.call` of the server, extended by progress to at most 10 min. */
  readonly deadlineMs?: number;
  /** The tool runs once for this key of the principal, however often the call is made within a day. */
  readonly idempotencyKey?: string;
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly attempt?: number;
}

/** Options of a request other than a tool call, such as `prompts/get`. */
export type HostRequestOptions = Omit<HostCallOptions, 'idempotencyKey' | 'attempt'>;

/** Default options. Calls without options are recognised by the identity of this object. */
export const noCallOptions: HostCallOptions = Object.freeze({});

export type ToolResult = Pick<CallResult, 'bytes' | 'isError' | 'era' | 'json'>;

export interface ListOptions {
  readonly principal?: Principal;
  readonly signal?: CancelSignal;
  /** Time limit from now, queueing included; default 10 s for a list and 60 s for a resource. */
  readonly deadlineMs?: number;
}

export interface ResourceResult {
  readonly server: string;
  readonly uri: string;
  readonly bytes: Buffer;
  json(): unknown;
}
