/**
 * Whether a URI may have come out of a URI template (RFC 6570, levels 1 and 2): enough to find the server that is meant, which
 * then decides for itself.
 * Invariant: the cost is at most the length of the URI times the parts of the template, whatever either holds.
 */

export interface UriTemplate {
  /** What every such URI begins with. */
  readonly head: string;
  readonly parts: readonly TemplatePart[];
}

type TemplatePart =
  | { readonly kind: 'literal'; readonly text: string }
  /** `{var}` is one path segment or less; `{+var}` and all other operators may be anything. */
  | { readonly kind: 'segment' | 'anything' };

const templateCharsMax = 2_048;
const uriCharsMax = 8_192;
const expressionsMax = 32;

/** Undefined: it is none, or larger than anybody needs. */
export function parseTemplate(text: string): UriTemplate | undefined {
  if (text.length > templateCharsMax) return undefined;
  const parts: TemplatePart[] = [];
  let expressions = 0;
  let at = 0;
  while (at < text.length) {
    const open = text.indexOf('{', at);
    const literal = text.slice(at, open < 0 ? text.length : open);
    if (literal.includes('}')) return undefined;
    if (literal !== '') parts.push({ kind: 'literal', text: literal });
    if (open < 0) break;
    const close = text.indexOf('}', open);
    if (close <= open + 1 || ++expressions > expressionsMax) return undefined;
    parts.push({ kind: /[A-Za-z0-9_%.]/.test(text[open + 1] as string) ? 'segment' : 'anything' });
    at = close + 1;
  }
  const first = parts[0];
  return { head: first?.kind === 'literal' ? first.text : '', parts };
}

export function matchesTemplate({ head, parts }: UriTemplate, uri: string): boolean {
  if (uri.length > uriCharsMax || !uri.startsWith(head)) return false;
  // Each place of the URI up to which the parts so far can reach.
  let reached = new Uint8Array(uri.length + 1);
  reached[0] = 1;
  for (const part of parts) {
    const next = new Uint8Array(uri.length + 1);
    let any = false;
    let isOpen = false;
    for (let i = 0; i <= uri.length; i++) {
      if (part.kind === 'literal') {
        if (reached[i] !== 1 || !uri.startsWith(part.text, i)) continue;
        next[i + part.text.length] = 1;
        any = true;
        continue;
      }
      if (reached[i] === 1) isOpen = true;
      if (isOpen) {
        next[i] = 1;
        any = true;
      }
      if (part.kind === 'segment' && uri[i] === '/') isOpen = false;
    }
    if (!any) return false;
    reached = next;
  }
  return reached[uri.length] === 1;
}
