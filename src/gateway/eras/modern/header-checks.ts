/**
 * Compares the headers of a modern request with the members of its body that they repeat.
 * Not here: the metadata itself (envelope.ts).
 * Invariant: a message passes only if a reader of its headers and a reader of its body see the same request.
 */
import { LIMITS } from '../../../kernel/limits.js';
import { isSameNumber } from '../../../policy/canonical-json.js';
import { META, MODERN_ERRORS, MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import { decodeHeaderValue } from '../../../wire/header-value.js';
import { type AtPath, isObject, memberBytes, membersBytes, stringOf, valuesAt } from '../../../wire/json-members.js';
import { METHODS } from '../../../wire/methods.js';
import {
  type ClientCapabilities,
  isFailure,
  type MirroredHeader,
  type Router,
  type RpcFailure,
} from '../../exchange.js';
import type { Caller } from '../../http/ingress-context.js';
import type { RequestHeaders } from '../../http/request-headers.js';
import { readEnvelope, unsupportedVersion } from './envelope.js';

export type ModernCheck =
  | { readonly ok: true; readonly capabilities: ClientCapabilities }
  | { readonly ok: false; readonly failure: RpcFailure };

export function checkModernRequest(
  method: string,
  params: Buffer | undefined,
  { endpoint, principal, headers }: Caller,
  router: Pick<Router, 'mirroredArguments'>,
): ModernCheck {
  const field = METHODS.get(method)?.nameMember;
  const [meta, name, args] = isObject(params) ? membersBytes(params, keysWith(field)) : [];
  const envelope = readEnvelope(meta);
  if (isFailure(envelope)) return wrong(envelope);
  const { version, capabilities } = envelope;
  if (headers['mcp-protocol-version'] !== version)
    return wrong(mismatch('MCP-Protocol-Version', headers['mcp-protocol-version']));
  if (version !== MODERN_VERSION) return wrong(unsupportedVersion(version));
  // A method is plain ASCII, so its header is not encoded. The headers of names and arguments may be.
  if (headers['mcp-method'] !== method) return wrong(mismatch('Mcp-Method', headers['mcp-method']));
  if (field !== undefined) {
    const subject = name && stringOf(name);
    if (decoded(headers['mcp-name']) !== subject) return wrong(mismatch('Mcp-Name', headers['mcp-name']));
    if (method === 'tools/call' && subject !== undefined) {
      const mirrored = router.mirroredArguments(endpoint, principal, subject);
      const failure = mirrored && firstMismatch(mirrored, args, headers);
      if (failure) return wrong(failure);
    }
  }
  return { ok: true, capabilities };
}

const metaAlone = ['_meta'];
/** Created once per field, not per request. */
const keysByField = new Map(['name', 'uri', 'taskId'].map((field) => [field, ['_meta', field, 'arguments']]));
const keysWith = (field: string | undefined): readonly string[] =>
  field === undefined ? metaAlone : (keysByField.get(field) ?? ['_meta', field, 'arguments']);

/** A notification needs no metadata, but metadata that it has must agree with the headers. */
export function checkModernNotification(
  method: string,
  params: Buffer | undefined,
  headers: RequestHeaders,
): RpcFailure | undefined {
  if (headers['mcp-method'] !== undefined && headers['mcp-method'] !== method)
    return mismatch('Mcp-Method', headers['mcp-method']);
  const meta = isObject(params) ? memberBytes(params, '_meta') : undefined;
  const value = isObject(meta) ? memberBytes(meta, META.version) : undefined;
  const version = value === undefined ? headers['mcp-protocol-version'] : stringOf(value);
  if (version !== headers['mcp-protocol-version'])
    return mismatch('MCP-Protocol-Version', headers['mcp-protocol-version']);
  return version === MODERN_VERSION ? undefined : unsupportedVersion(version ?? '');
}

const decoded = (value: string | undefined): string | undefined =>
  value === undefined ? undefined : decodeHeaderValue(value);

const paramName = ({ name }: MirroredHeader): string => `mcp-param-${name.toLowerCase()}`;

function firstMismatch(
  mirrored: readonly MirroredHeader[],
  args: Buffer | undefined,
  headers: RequestHeaders,
): RpcFailure | undefined {
  const values = valuesAt(
    args,
    mirrored.map(({ path }) => path),
  );
  for (const [i, header] of mirrored.entries()) {
    const at = values[i] as AtPath;
    const raw = headers[paramName(header)];
    if (at === 'unclear') return unclear(header);
    if (!isMirrored(raw, at)) return mismatch(`Mcp-Param-${header.name}`, raw);
  }
  return undefined;
}

/** An absent or null argument must have no header. Any other argument must equal its header. */
function isMirrored(raw: string | undefined, at: Exclude<AtPath, 'unclear'>): boolean {
  if (at === 'absent' || at.equals(nullText)) return raw === undefined;
  if (raw === undefined) return false;
  const value = decodeHeaderValue(raw);
  if (value === undefined) return false;
  const text = stringOf(at);
  if (text !== undefined) return text === value;
  const written = at.toString('latin1');
  return written === value || isSameNumber(written, value);
}

const nullText = Buffer.from('null');

/** No header value could match an ambiguous argument. */
const unclear = ({ name }: MirroredHeader): RpcFailure => ({
  code: MODERN_ERRORS.headerMismatch,
  message: `the argument for the header Mcp-Param-${name} stands more than once, or among more than ${LIMITS.members} others; name each argument once`,
  httpStatus: 400,
});

const wrong = (failure: RpcFailure): ModernCheck => ({ ok: false, failure });

/** The values are not quoted: a header may contain a secret. */
const mismatch = (header: string, value: string | undefined): RpcFailure => ({
  code: MODERN_ERRORS.headerMismatch,
  message: `the header ${header} ${value === undefined ? 'is missing' : 'differs from the body'}; send the value of the body`,
  httpStatus: 400,
});
