/**
 * References to secrets that are resolved late: `${file:PATH}` and `${exec:NAME}` in `env` and `headers` of a server, and in its
 * `auth.clientSecret` and `auth.clientKey.pem`.
 * A late text contains its references as written, with absolute paths. Everything else in it is escaped, so a value that was
 * filled in earlier never becomes a reference.
 * Not here: the values (secret-values.ts), placeholders that are replaced when the file is read (placeholders.ts).
 */

export interface Reference {
  readonly kind: 'file' | 'exec';
  /** Absolute path, or name in `secrets.exec`. */
  readonly name: string;
}

const reference = /\$\{(file|exec|text):([^}]*)\}/g;

/** Escapes a literal part of a late text. */
export const literal = (text: string): string => text.replaceAll(`\${`, `\${text:$$}{`);

export const referenceText = ({ kind, name }: Reference): string => `\${${kind}:${name}}`;

export const hasReference = (text: string): boolean => referencesIn(text).length > 0;

export function referencesIn(text: string): Reference[] {
  return [...text.matchAll(reference)].flatMap(([, kind, name = '']) =>
    kind === 'file' || kind === 'exec' ? [{ kind, name }] : [],
  );
}

/** Replaces the references with their values, in one pass: a value is never searched for references. */
export const expand = (text: string, lookUp: (each: Reference) => string): string =>
  text.replace(reference, (_all, kind: 'file' | 'exec' | 'text', name: string) =>
    kind === 'text' ? name : lookUp({ kind, name }),
  );

/** True for the fields whose references are resolved when the server starts, or when a header or the secret of a client is sent. */
export const isLateField = ([table, , field, ...names]: readonly string[]): boolean =>
  table === 'mcpServers' &&
  (field === 'auth'
    ? ['clientSecret', 'clientKey.pem'].includes(names.join('.'))
    : (field === 'env' || field === 'headers') && names.length > 0);
