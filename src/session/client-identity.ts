/**
 * Who we say we are, as JSON text made once, for both eras.
 */
import type { MetaEdits } from '../wire/json-edit.js';
import { META, MODERN_VERSION, NEWEST_LEGACY_VERSION } from './versions.js';

export interface ClientIdentity {
  readonly name: string;
  readonly version: string;
  /** What we can do for a server: elicitation, sampling, roots. Declared only when somebody handles it. */
  readonly capabilities: Readonly<Record<string, unknown>>;
}

export interface ClientTexts {
  /** Params of a legacy `initialize`. */
  readonly initialize: string;
  /** The members of a modern `_meta`, ready to be spliced or joined. */
  readonly metaEdits: MetaEdits;
  readonly metaMembers: string;
  /** The same for a request on behalf of somebody who can do this: one JSON object. */
  metaMembersWith(capabilities: string): string;
}

export function clientTexts({ name, version, capabilities }: ClientIdentity): ClientTexts {
  const clientInfo = JSON.stringify({ name, version });
  const clientCapabilities = JSON.stringify(capabilities);
  const metaEdits: MetaEdits = [
    [META.version, JSON.stringify(MODERN_VERSION)],
    [META.clientInfo, clientInfo],
    [META.clientCapabilities, clientCapabilities],
  ];
  const fixed = metaEdits
    .slice(0, -1)
    .map(([key, json]) => `${JSON.stringify(key)}:${json}`)
    .join(',');
  const metaMembersWith = (own: string) => `${fixed},"${META.clientCapabilities}":${own}`;
  return {
    initialize: `{"protocolVersion":"${NEWEST_LEGACY_VERSION}","capabilities":${clientCapabilities},"clientInfo":${clientInfo}}`,
    metaEdits,
    metaMembers: metaMembersWith(clientCapabilities),
    metaMembersWith,
  };
}
