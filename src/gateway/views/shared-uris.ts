/**
 * Where several servers are behind one endpoint, two of them may list the same URI, or the same template. Neither may stand for
 * the other: both are shown behind a URI of ours that names the server, `hostler://<server>/<uri>`, and the plain one is refused
 * as ambiguous. A URI that a server itself begins with `hostler://` is shown behind ours too, so that no server can pose as another.
 * The inner URI is not encoded: every character of a URI may be in a path, and a client expands a template to the text that the
 * server expects.
 * Invariant: what is within, in results and links, is the server's own and is left as it is.
 */

import { editMembers } from '../../wire/json-edit.js';
import { memberString } from '../../wire/json-members.js';

const scheme = 'hostler://';

/** A resource, or the text of a template, as its server names it. */
export interface ResourceTarget {
  readonly server: string;
  readonly uri: string;
  /** It matches a template of the server; a server that was not seen yet may list it. */
  readonly isByTemplate?: boolean;
}

/** Servers that all have the URI, or a template that it matches. */
export interface AmbiguousResource {
  readonly servers: readonly string[];
}

export const isAmbiguous = (found: ResourceTarget | AmbiguousResource): found is AmbiguousResource =>
  'servers' in found;

export const wrapUri = ({ server, uri }: ResourceTarget): string => `${scheme}${encodeURIComponent(server)}/${uri}`;

/** Whether it has the form of ours, or would be taken for it: the case of a scheme says nothing. */
export const hasOurScheme = (uri: string): boolean =>
  uri.startsWith(scheme) || uri.slice(0, scheme.length).toLowerCase() === scheme;

/** Undefined when it is not of this form. */
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

/** What a server says of a resource, for a client that knows it behind ours. */
export function wrapParams(params: Buffer, server: string): Buffer {
  const uri = memberString(params, 'uri');
  return (
    (uri === undefined ? undefined : editMembers(params, [['uri', JSON.stringify(wrapUri({ server, uri }))]])) ?? params
  );
}
