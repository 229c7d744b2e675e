/**
 * The protocol revisions Hostler speaks. Since 2026-07-28 ("modern") there is no handshake and every request carries its
 * own metadata; before that ("legacy") a connection is opened by `initialize`.
 */
import type { Era } from '../wire/channel.js';

export const MODERN_VERSION = '2026-07-28';

/** Newest first: the first is what we offer. */
export const LEGACY_VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const;
export const NEWEST_LEGACY_VERSION = LEGACY_VERSIONS[0];

/** The only one with batches. */
export const BATCH_VERSION = '2025-03-26';

export const isLegacyVersion = (version: string): boolean => (LEGACY_VERSIONS as readonly string[]).includes(version);

/** Error codes that only a modern server sends. */
export const MODERN_ERRORS = { headerMismatch: -32020, missingCapability: -32021, unsupportedVersion: -32022 } as const;
export const isModernError = (code: number): boolean => (Object.values(MODERN_ERRORS) as number[]).includes(code);

/** Members of `params._meta` that a modern request must or should carry. */
export const META = {
  version: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  clientCapabilities: 'io.modelcontextprotocol/clientCapabilities',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
} as const;

/** What was learnt about a server, so that the next start does not probe again. Keyed by whatever identifies the server. */
export interface EraMemory {
  get(key: string): Era | undefined;
  /** A session opened in this era; `undefined` where that does not say which era the server prefers. */
  opened(key: string, era: Era | undefined): void;
  /** Starts in a row that failed because the process exited or gave no valid answer. */
  failedStarts(key: string): number;
  startFailed(key: string): void;
}
