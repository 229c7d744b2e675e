/**
 * What goes into a Host and what comes out of it: the types an embedder meets.
 */
import type { Clock } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { Principal } from '../policy/call.js';
import type { ConnectorOptions } from '../session/connector.js';
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
}

interface CeilingEntry {
  readonly calls: number;
  readonly window: number | string;
}

export interface HostOptions {
  readonly client?: ConnectorOptions['client'];
  readonly stateDir?: string;
  readonly ambient?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly random?: Random;
  /** An entry of the configuration that could not be used, or something that went wrong beside a call. */
  readonly onProblem?: (error: unknown) => void;
}

export interface HostCallOptions {
  readonly principal?: Principal;
  readonly signal?: AbortSignal;
  /** How long it may take from now, waiting included; 60 s when absent. */
  readonly deadlineMs?: number;
  readonly idempotencyKey?: string;
  readonly onProgress?: (params: Buffer) => void;
  readonly attempt?: number;
}

/** What a tool answered. */
export interface ToolResult {
  /** The result object as the server wrote it. */
  readonly bytes: Buffer;
  readonly isError: boolean;
  json(): unknown;
}

export interface HostTool {
  readonly server: string;
  readonly name: string;
  readonly raw: Buffer;
}

export type Discovered =
  | { readonly server: string; readonly tool: string; readonly schema: unknown }
  | { readonly server: string; readonly error: HostError };

/** Whoever embeds the host without roles acts as this. */
export const embedder: Principal = { id: 'embedder', role: undefined, scopes: [] };
