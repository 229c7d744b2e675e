/**
 * URIs of the form `hostler://<server>/<uri>`. If two servers of an endpoint list the same URI or template, both are shown in
 * this form, and the plain URI is refused as ambiguous. A server's own `hostler://` URI is wrapped too, so that no server can
 * pose as another. The inner URI is not encoded: expanding a wrapped template must give the server's own URI.
 * Invariant: URIs inside results and links are not changed.
 */
import { editMembers } from '../../wire/json-edit.js';
import { memberString } from '../../wire/json-members.js';

const scheme = 'hostler://';

/** A server, and its own URI or template text. */
export interface ResourceTarget {
  readonly server: string;
  readonly uri: string;
  /** True if the URI only matches a template. A server that has never run may list the URI itself. */
  readonly isByTemplate?: boolean;
}

/** Result for a URI that several servers list, or that matches templates of several servers. */
export interface AmbiguousResource {
  readonly servers: readonly string[];
}

export const isAmbiguous = (found: ResourceTarget | AmbiguousResource): found is AmbiguousResource =>
  'servers' in found;

export const wrapUri = ({ server, uri }: ResourceTarget): string => `${scheme}${encodeURIComponent(server)}/${uri}`;

/** Schemes are case-insensitive. */
export const hasOurScheme = (uri: string): boolean =>
  uri.startsWith(scheme) || uri.slice(0, scheme.length).toLowerCase() === scheme;

/** Returns undefined for a text of another form. */
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

/** Wraps the URI in the params of an update, for a client that knows the resource by its wrapped URI. */
export function wrapParams(params: Buffer, server: string): Buffer {
  const uri = memberString(params, 'uri');
  return (
    (uri === undefined ? undefined : editMembers(params, [['uri', JSON.stringify(wrapUri({ server, uri }))]])) ?? params
  );
}
