/**
 * Parses `WWW-Authenticate` (RFC 9110, section 11.6.1): several challenges, quoted strings, token68.
 * Invariant: linear in the length of the header. What follows a malformed part is ignored.
 */

export interface Challenge {
  /** Lower case. */
  readonly scheme: string;
  /** Names in lower case. Of two equal names the first one is used. */
  readonly params: ReadonlyMap<string, string>;
}

const challengesMax = 16;
const blanks = /[ \t,]*/y;
const name = /([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*/y;
const equals = /=[ \t]*(?:"((?:[^"\\]|\\[\s\S])*)"|([!#$%&'*+\-.^_`|~0-9A-Za-z]+))[ \t]*(?=,|$)/y;
const token68 = /[A-Za-z0-9\-._~+/]+=*[ \t]*(?=,|$)/y;

export function parseChallenges(header: string | undefined): readonly Challenge[] {
  if (header === undefined) return [];
  const found: { scheme: string; params: Map<string, string> }[] = [];
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(header);
    if (match) at = pattern.lastIndex;
    return match;
  };
  take(blanks);
  while (at < header.length && found.length < challengesMax) {
    const word = take(name)?.[1]?.toLowerCase();
    if (word === undefined) break;
    const value = take(equals);
    const last = found.at(-1);
    if (value) {
      if (!last) break;
      const [, quoted, plain = ''] = value;
      if (!last.params.has(word)) last.params.set(word, quoted?.replace(/\\([\s\S])/g, '$1') ?? plain);
    } else if (header[at] === '=') {
      break;
    } else {
      found.push({ scheme: word, params: new Map() });
      // A token68 is not used here, but it must not be taken for a scheme.
      if (at < header.length && header[at] !== ',') take(token68);
    }
    take(blanks);
  }
  return found;
}

/** The first Bearer challenge; undefined: there is none. */
export const bearerChallenge = (header: string | undefined): Challenge | undefined =>
  parseChallenges(header).find(({ scheme }) => scheme === 'bearer');

/** Scopes of a challenge, in order, each once. */
export const scopesOf = (text: string | undefined): readonly string[] => [
  ...new Set((text ?? '').split(' ').filter((scope) => /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/.test(scope))),
];

/** Scopes that a refused call needs, sorted. Empty: the server names none. */
export function missingScopes(header: string | undefined): readonly string[] {
  const refused = parseChallenges(header).find(({ params }) => params.get('error') === 'insufficient_scope');
  return [...scopesOf(refused?.params.get('scope'))].sort();
}
