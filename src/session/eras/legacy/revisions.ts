/** The legacy protocol revisions, and the small differences between them. */
interface Revision {
  readonly hasBatches?: boolean;
  /** Event streams to clients begin with an event without data, from which a client can resume. Older clients fail on it. */
  readonly primesStreams?: boolean;
}

const REVISIONS = {
  '2025-11-25': { primesStreams: true },
  '2025-06-18': {},
  '2025-03-26': { hasBatches: true },
  '2024-11-05': {},
} as const satisfies Record<string, Revision>;

/** Newest first; Hostler offers the first. */
export const LEGACY_VERSIONS: readonly string[] = Object.keys(REVISIONS);
export const NEWEST_LEGACY_VERSION = LEGACY_VERSIONS[0] as string;

export const isLegacyVersion = (version: string): boolean => Object.hasOwn(REVISIONS, version);

const revisionOf = (version: string): Revision =>
  Object.hasOwn(REVISIONS, version) ? REVISIONS[version as keyof typeof REVISIONS] : {};

export const hasBatches = (version: string): boolean => revisionOf(version).hasBatches === true;
export const primesStreams = (version: string): boolean => revisionOf(version).primesStreams === true;
