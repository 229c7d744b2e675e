/** The legacy protocol revisions, and the small differences between them. */
interface Revision {
  /** Several messages may come in one JSON array. */
  readonly hasBatches?: boolean;
}

const REVISIONS = {
  '2025-11-25': {},
  '2025-06-18': {},
  '2025-03-26': { hasBatches: true },
  '2024-11-05': {},
} as const satisfies Record<string, Revision>;

/** Newest first: the first is what we offer. */
export const LEGACY_VERSIONS: readonly string[] = Object.keys(REVISIONS);
export const NEWEST_LEGACY_VERSION = LEGACY_VERSIONS[0] as string;

export const isLegacyVersion = (version: string): boolean => Object.hasOwn(REVISIONS, version);

export const hasBatches = (version: string): boolean =>
  isLegacyVersion(version) && (REVISIONS as Record<string, Revision>)[version]?.hasBatches === true;
