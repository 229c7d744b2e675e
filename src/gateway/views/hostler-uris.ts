/**
 * URIs of the form `hostler://<server>/<uri>`. Where two servers of one endpoint list the same URI or template, both are shown in this
 * form, and the plain URI is refused as ambiguous. A URI of a server that begins with `hostler://` is wrapped too, so that no server
 * can pose as another.
 * The inner URI is not encoded: every character of a URI may be in a path, and a client expands a template to the text that the
 * server expects.
 * Invariant: URIs inside results and links stay as the server wrote them.
 */

import { editMembers } from '../../wire/json-edit.js';
import { memberString } from '../../wire/json-members.js';

const scheme = 'hostler://';

/** A resource, or the text of a template, as its server names it. */
export interface ResourceTarget {
  readonly server: string;
  readonly uri: string;
  /** It matches a template of the server; a server that never ran may list it. */
  readonly isByTemplate?: boolean;
}

/** Several servers list the URI, or a template that it matches. */
export interface AmbiguousResource {
  readonly servers: readonly string[];
}

export const isAmbiguous = (found: ResourceTarget | AmbiguousResource): found is AmbiguousResource =>
  'servers' in found;

export const wrapUri = ({ server, uri }: ResourceTarget): string => `${scheme}${encodeURIComponent(server)}/${uri}`;

/** Whether it begins with our scheme, in any case: schemes are case-insensitive. */
export const hasOurScheme = (uri: string): boolean =>
  uri.startsWith(scheme) || uri.slice(0, scheme.length).toLowerCase() === scheme;

/** Undefined for a text of another form. */
export function unwrapUri(text: string): ResourceTarget | undefined {
  if (!text.startsWith(scheme)) return undefined;
  const slash = text.indexOf('/', scheme.length);
  const uri = text.slice(slash + 1);
  if (slash < 0 || uri === '') return undefined;
  try {
    return { server: decodeURIComponent(text.slice(scheme.length, slash)), uri };
  } catch {
    return undefined;
  }
}

/** The params of an update, for a client that knows the resource by its wrapped URI. */
export function wrapParams(params: Buffer, server: string): Buffer {
  const uri = memberString(params, 'uri');
  return (
    (uri === undefined ? undefined : editMembers(params, [['uri', JSON.stringify(wrapUri({ server, uri }))]])) ?? params
  );
}
