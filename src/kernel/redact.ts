/**
 * Takes secrets out of text before it reaches a log, an error, a status row or a person.
 * Two nets: values we were given ourselves (each also in its base64, URL and JSON-escaped form), and shapes that are
 * known to be secrets. Patterns are linear: none nests a repetition in a repetition.
 * Not here: control characters (terminal-text.ts).
 */
export type Redact = (text: string) => string;

const mark = '[REDACTED]';

/** Shorter values are words; replacing them would garble everything and hide nothing. */
const knownValueMinChars = 6;
const knownValuesMax = 1_000;

/** Whole match is the secret. */
const shapes: readonly RegExp[] = [
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]{0,16384}?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)/g,
  /\b(?:gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_[A-Za-z0-9_]{20,255})/g,
  /\bglpat-[A-Za-z0-9_-]{16,255}/g,
  /\bsk-[A-Za-z0-9_-]{16,255}/g,
  /\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,255}/g,
  /\bxox[a-z]-[A-Za-z0-9-]{10,255}/g,
  /\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b/g,
  /\bAIza[A-Za-z0-9_-]{30,60}/g,
  /\bya29\.[A-Za-z0-9_-]{20,512}/g,
  /\bnpm_[A-Za-z0-9]{30,255}/g,
  /\bpypi-[A-Za-z0-9_-]{20,512}/g,
  /\bhf_[A-Za-z0-9]{20,255}/g,
  /\bntn_[A-Za-z0-9]{20,255}/g,
  /\btvly-[A-Za-z0-9_-]{10,255}/g,
  /\bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}/g,
  /\bdop_v1_[a-f0-9]{32,128}/g,
  /\bAGE-SECRET-KEY-1[A-Z0-9]{40,80}/g,
  /\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{4,8192}(?:\.[A-Za-z0-9_-]{0,2048})?/g,
  /\bhostler_[A-Za-z0-9_-]{20,255}/g,
];

/** The second group is the secret; the first says why and stays. */
const labelled: readonly RegExp[] = [
  /\b((?:proxy-)?authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:bearer|basic|token|digest)?\s{0,4})([^\s"',;]{4,4096})/gi,
  /\b(bearer\s{1,4})([A-Za-z0-9._~+/=-]{6,4096})/gi,
  /((?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret|(?:access|refresh|id|auth|session)?[_-]?token|password|passwd|passphrase|pwd|secret|credential|cookie|session[_-]?id|signature|(?<![A-Za-z])key)["']?\s{0,4}[:=]\s{0,4}["']?)([^\s"'&,;<>]{3,4096})/gi,
  /(\/\/[^\s/:@]{0,256}:)([^\s/@]{1,1024})(?=@)/g,
];

/** Every form in which a known value could show up again. */
function formsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const base64 = Buffer.from(value).toString('base64').replace(/=+$/, '');
  const base64url = Buffer.from(value).toString('base64url');
  return [value, json, encodeURIComponent(value), base64, base64url, Buffer.from(value).toString('hex')];
}

export interface Redactor {
  readonly redact: Redact;
  /** From now on this value is taken out wherever it shows. */
  know(value: string): void;
}

export function createRedactor(secrets: Iterable<string> = []): Redactor {
  const known = new Set<string>();
  let ordered: string[] = [];

  const know = (value: string) => {
    if (value.length < knownValueMinChars || known.size >= knownValuesMax * 6) return;
    for (const form of formsOf(value)) known.add(form);
    // The longest first: a short secret that is part of a longer one must not break it up.
    ordered = [...known].sort((a, b) => b.length - a.length);
  };
  for (const secret of secrets) know(secret);

  const redact: Redact = (text) => {
    let clean = text;
    for (const value of ordered) if (clean.includes(value)) clean = clean.replaceAll(value, mark);
    for (const shape of shapes) clean = clean.replace(shape, mark);
    for (const pattern of labelled) clean = clean.replace(pattern, `$1${mark}`);
    return clean;
  };
  return { redact, know };
}
