/**
 * Where several servers are behind one endpoint, two of them may have the same URI, or the same template. The first keeps it; of
 * the others it is shown behind a URI of ours that says whose it is: `hostler://<server>/<uri>`.
 * The inner one is not encoded: every character of a URI may stand in a path, and what a client makes of a template stays the
 * text that the server would have got.
 * Invariant: what is within, in results and links, is the server's own and is left as it is.
 */
import { memberString } from '../../wire/json-members.js';
import { editMembers } from '../messages/object-splice.js';

const scheme = 'hostler://';

/** A resource, or the text of a template, in the words of its server. */
export interface ResourceTarget {
  readonly server: string;
  readonly uri: string;
}

export const wrapUri = ({ server, uri }: ResourceTarget): string => `${scheme}${encodeURIComponent(server)}/${uri}`;

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
