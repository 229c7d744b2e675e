/**
 * Redacts secrets in text before it reaches a log, an error, a status row or a person. It finds known values (also in base64,
 * hex, URL and JSON-escaped form) and patterns of known kinds of secrets. Each pattern takes linear time, even on hostile text.
 * Not here: control characters (terminal-text.ts).
 */
import { setBounded } from './bounded-map.js';

export type Redact = (text: string) => string;

const mark = '[REDACTED]';

/** Shorter values are ordinary words; replacing them would garble all text. */
const knownValueCharsMin = 6;
const knownValuesMax = 1_000;
/** A value that gets more owners than this stays redacted. */
const ownersMax = 100;
const noOwner = {};

interface KnownValue {
  readonly forms: readonly string[];
  readonly owners: Set<object>;
}

const textCharsMax = 256 * 1024;

/** A token starts only after a non-token character, so each run of token characters is scanned once. */
const token = (prefix: string, rest: string) => new RegExp(`(?<![A-Za-z0-9_-])${prefix}${rest}`, 'g');

/** Patterns whose whole match is the secret. */
const shapes: readonly RegExp[] = [
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----(?:BEGIN|END) )[\s\S]){0,16384}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/g,
  token('(?:gh[pousr]_|github_pat_)', '[A-Za-z0-9_]{16,255}'),
  token('glpat-', '[A-Za-z0-9_-]{16,255}'),
  token('sk-', '[A-Za-z0-9_-]{16,255}'),
  token('[sr]k_(?:live|test)_', '[A-Za-z0-9]{10,255}'),
  token('xox[a-z]-', '[A-Za-z0-9-]{10,255}'),
  token('(?:AKIA|ASIA|AROA|AIDA)', '[A-Z0-9]{16}(?![A-Za-z0-9_-])'),
  token('AIza', '[A-Za-z0-9_-]{30,60}'),
  token('ya29\\.', '[A-Za-z0-9_-]{20,512}'),
  token('npm_', '[A-Za-z0-9]{30,255}'),
  token('pypi-', '[A-Za-z0-9_-]{20,512}'),
  token('hf_', '[A-Za-z0-9]{20,255}'),
  token('ntn_', '[A-Za-z0-9]{20,255}'),
  token('tvly-', '[A-Za-z0-9_-]{10,255}'),
  token('SG\\.', '[A-Za-z0-9_-]{16,64}\\.[A-Za-z0-9_-]{16,128}'),
  token('dop_v1_', '[a-f0-9]{32,128}'),
  token('AGE-SECRET-KEY-1', '[A-Z0-9]{40,80}'),
  token('eyJ', '[A-Za-z0-9_-]{8,4096}\\.[A-Za-z0-9_-]{4,8192}(?:\\.[A-Za-z0-9_-]{0,2048})?'),
  token('hostler_', '[A-Za-z0-9_-]{20,255}'),
  token('hk_', '[A-Za-z0-9_-]{40,255}'),
  // The secret half of a NATS nkey pair.
  token('S[ACNOUX]', '[A-Z2-7]{56}(?![A-Za-z0-9_-])'),
];

/** User name and password of a URL; the user name stays. */
const userInfo = /(\/\/[^\s/:@]{0,256}:)([^\s/@]{1,1024})(?=@)/g;

/** Patterns whose second group is the secret. The first group is its label and stays. For text of servers only. */
const labelled: readonly RegExp[] = [
  /\b((?:proxy-)?authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:bearer|basic|token|digest)?\s{0,4})([^\s"',;]{4,4096})/gi,
  /\b(bearer\s{1,4})([A-Za-z0-9._~+/=-]{6,4096})/gi,
  /((?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret|(?:access|refresh|id|auth|session)?[_-]?token|password|passwd|passphrase|pwd|secret|credential|cookie|session[_-]?id|signature|(?<![A-Za-z])key)["']?\s{0,4}[:=]\s{0,4}["']?)([^\s"'&,;<>]{3,4096})/gi,
];

function formsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const base64 = Buffer.from(value).toString('base64').replace(/=+$/, '');
  const base64url = Buffer.from(value).toString('base64url');
  return [value, json, encodeURIComponent(value), base64, base64url, Buffer.from(value).toString('hex')];
}

export interface Redactor {
  /** For text of servers: also redacts what follows a label such as `token:`. */
  readonly redact: Redact;
  /**
   * For texts that Hostler composes, such as `wants authorization: log in`: does not redact the words after a label. If such
   * a text quotes a server, the quoted text must have been redacted before.
   */
  readonly mask: Redact;
  /** Redacts the value from now on. If it is added without `owner`, only `forget` without `owner` can end this. */
  know(value: string, owner?: object): void;
  /** The value stays redacted as long as it has another owner. */
  forget(value: string, owner?: object): void;
}

export function createRedactor(secrets: Iterable<string> = []): Redactor {
  /** Known value and all its forms; oldest first. */
  const known = new Map<string, KnownValue>();
  let forms: string[] = [];

  const know = (value: string, owner = noOwner) => {
    if (value.length < knownValueCharsMin) return;
    const before = known.get(value);
    if (before) return void before.owners.add(before.owners.size < ownersMax ? owner : noOwner);
    setBounded(known, value, { forms: formsOf(value), owners: new Set([owner]) }, knownValuesMax);
    sort();
  };
  const forget = (value: string, owner = noOwner) => {
    const owners = known.get(value)?.owners;
    if (!owners?.delete(owner) || owners.size > 0) return;
    known.delete(value);
    sort();
  };
  // Longest first: a short secret inside a longer one must not split it.
  const sort = () => {
    forms = [...new Set([...known.values()].flatMap((each) => each.forms))].sort((a, b) => b.length - a.length);
  };
  for (const secret of secrets) know(secret);

  const masked: Redact = (text) => {
    let redacted = text.length > textCharsMax ? `${text.slice(0, textCharsMax)}…` : text;
    for (const form of forms) if (redacted.includes(form)) redacted = redacted.replaceAll(form, mark);
    for (const shape of shapes) redacted = redacted.replace(shape, mark);
    return redacted.replace(userInfo, `$1${mark}`);
  };
  const redact: Redact = (text) => {
    let redacted = masked(text);
    for (const pattern of labelled) redacted = redacted.replace(pattern, `$1${mark}`);
    return redacted;
  };
  return { redact, mask: masked, know, forget };
}
