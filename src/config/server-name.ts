/**
 * Names of servers. Clients write any text; inside Hostler a server's name is its slug: `[a-z0-9_-]`, at most 64 characters. The
 * text as written is its label.
 * Invariants: different names get different slugs. The slug of a name depends on the set of names, never on their order. A name
 * that is a valid slug does not change, so a configuration can be normalised twice, and a new name never renames such a server.
 */
import { hash } from 'node:crypto';

export const slugPattern = /^[a-z0-9][a-z0-9_-]{0,63}$/;

const slugCharsMax = 64;
const nameCharsRead = 256;
/** Lengths of the hash, tried in this order while two slugs are equal. */
const hashLengths = [0, 8, 16, 40] as const;

/** Slugs by name, in the order of `names`. */
export function slugsOf(names: Iterable<string>): Map<string, string> {
  const slugs = new Map([...names].map((name) => [name, slugOf(name, 0)]));
  for (const length of hashLengths.slice(1)) {
    const holders = new Map<string, number>();
    for (const slug of slugs.values()) holders.set(slug, (holders.get(slug) ?? 0) + 1);
    for (const [name, slug] of slugs) {
      const isUnique = slug !== '' && holders.get(slug) === 1;
      if (!isUnique && !slugPattern.test(name)) slugs.set(name, slugOf(name, length));
    }
  }
  return slugs;
}

/** Without a hash, the slug is empty for a name without usable characters or with too many. */
function slugOf(name: string, hashChars: number): string {
  if (hashChars === 0 && slugPattern.test(name)) return name;
  const base = name
    .slice(0, nameCharsRead)
    .normalize('NFKD')
    .replace(/\p{Mark}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9_-]+/g, '-')
    .replace(/^[-_]+|-+$/g, '');
  if (hashChars === 0) return base.length > slugCharsMax || name.length > nameCharsRead ? '' : base;
  const digest = hash('sha256', name).slice(0, hashChars);
  return `${(base || 'server').slice(0, slugCharsMax - hashChars - 1)}-${digest}`;
}

interface NamedServer {
  readonly name: string;
  readonly label?: string | undefined;
}

export interface ServerTarget {
  readonly server: string;
  readonly tool?: string;
}

/** The slug of the server that a person means by a slug or a label. */
export const findServer = (servers: Iterable<NamedServer>, text: string): string | undefined => {
  const all = [...servers];
  return (all.find(({ name }) => name === text) ?? all.find(({ label }) => label === text))?.name;
};

/**
 * Reads `SERVER`, `SERVER/TOOL` or `SERVER.TOOL`, as `call` writes it. A label may contain slashes and dots, so it is recognised
 * only as the whole text. The server need not exist; a dot ends the slug of one that exists.
 */
export function readTarget(servers: Iterable<NamedServer>, text: string): ServerTarget {
  const all = [...servers];
  const whole = findServer(all, text);
  if (whole !== undefined) return { server: whole };
  // A slug has no dot.
  const dot = text.indexOf('.');
  const isDotted = dot > 0 && all.some(({ name }) => name === text.slice(0, dot));
  const end = isDotted ? dot : text.indexOf('/');
  return end < 0 ? { server: text } : { server: text.slice(0, end), tool: text.slice(end + 1) };
}
