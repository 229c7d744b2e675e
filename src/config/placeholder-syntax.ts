/**
 * Reads the placeholders of a text: Hostler's own, and those that MCP clients write.
 * Not here: values of variables and files (placeholders.ts).
 * Invariant: pure. A text that is no placeholder of a known kind stays as it is.
 */
import path from 'node:path';
import { neutraliseLine } from '../kernel/terminal-text.js';

/** What a placeholder stands for. */
export type Reference =
  | { readonly kind: 'env'; readonly name: string; readonly otherwise?: string | undefined }
  | { readonly kind: 'file' | 'exec'; readonly name: string }
  | { readonly kind: 'folder'; readonly name: string }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'refused'; readonly what: string; readonly hint: string };

/** `$${` stands for `${`. A default ends at the first `}`. */
const placeholder = /\$\$\{|\$\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{(?:env|file):[^{}]*\}/g;
const nested = /\$\{[^{}]*:-[^{}]*\$\{/;
/** Values of variables and headers that consist of one variable without braces. */
const wholes = [/^\$([A-Z_][A-Z0-9_]*)$/, /^\$env:(\w+)$/, /^%(\w+)%$/];
const variable = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s;
const ownVariable = /^env:(.*?)(?::-(.*))?$/s;
const folders = new Set(['userHome', 'workspaceFolder', 'workspaceFolderBasename', 'workspaceRoot']);
/** Values that a client asks its user for, or knows from its own settings. */
const asked = /^(?:input|command|config|prompt|secret|secrets|user_config)[:.]/;

const shownChars = 100;

interface Replacing {
  /** The text is the value of a variable or header. */
  readonly isValue: boolean;
  /** Converts the parts between placeholders. */
  readonly plain: ((part: string) => string) | undefined;
  /** Returns the text that replaces a reference. */
  readonly replace: (reference: Reference) => string;
}

export function replacePlaceholders(text: string, { isValue, plain = same, replace }: Replacing): string {
  const whole = isValue ? wholes.map((each) => each.exec(text)?.[1]).find((name) => name !== undefined) : undefined;
  if (whole !== undefined) return replace({ kind: 'env', name: whole });
  if (!text.includes('{')) return text;
  if (nested.test(text)) return replace({ kind: 'refused', ...nestedDefault });
  let filled = '';
  let end = 0;
  for (const { 0: written, index } of text.matchAll(placeholder)) {
    const reference = referenceOf(written);
    if (!reference) continue;
    filled += plain(text.slice(end, index)) + replace(reference);
    end = index + written.length;
  }
  return filled + plain(text.slice(end));
}

const same = (part: string): string => part;

/** Returns the paths of all `${file:PATH}` in a text, as written. */
export function filesNamedIn(text: string): string[] {
  return [...text.matchAll(placeholder)].flatMap(([written]) => {
    const reference = referenceOf(written);
    return reference?.kind === 'file' ? [reference.name] : [];
  });
}

function referenceOf(written: string): Reference | undefined {
  if (written === '$${') return { kind: 'text', text: '${' };
  const content = written.replace(/^\$?\{\{?\s*|\s*\}?\}$/g, '');
  if (content === '/' || content === 'pathSeparator') return { kind: 'text', text: path.sep };
  if (folders.has(content)) return { kind: 'folder', name: content };
  if (asked.test(content)) return { kind: 'refused', ...onlyInClient(neutraliseLine(written, shownChars)) };
  const [, kind, name = ''] = /^(file|exec):(.*)$/s.exec(content) ?? [];
  if (kind === 'file' || kind === 'exec') return { kind, name };
  const match = content.startsWith('env:') ? ownVariable.exec(content) : variable.exec(content);
  return match && !written.startsWith('${{') ? { kind: 'env', name: match[1] ?? '', otherwise: match[2] } : undefined;
}

const nestedDefault = {
  what: 'the default of a placeholder contains another placeholder',
  hint: 'write the default as plain text',
};
const onlyInClient = (written: string) => ({
  what: `${written} is a value that only its client can ask for or look up`,
  hint: `write it as \${env:NAME} or \${file:PATH} instead`,
});
