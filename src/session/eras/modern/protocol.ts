/** Constants of protocol revision 2026-07-28 ("modern"), which has no handshake: every request carries its own metadata. */
export const MODERN_VERSION = '2026-07-28';

/** Error codes that no earlier revision has. */
export const MODERN_ERRORS = { headerMismatch: -32020, missingCapability: -32021, unsupportedVersion: -32022 } as const;
export const isModernError = (code: number): boolean => (Object.values(MODERN_ERRORS) as number[]).includes(code);

/** Members of `params._meta` that a request must or should carry, and `serverInfo` of a result. */
export const META = {
  version: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  clientCapabilities: 'io.modelcontextprotocol/clientCapabilities',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
} as const;

/** In `_meta` of notifications on a listen stream. */
export const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';
