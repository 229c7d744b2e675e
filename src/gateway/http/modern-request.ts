/**
 * The checks of the modern era (2026-07-28): the metadata that every request carries, and the headers that repeat what the
 * body says. Pure: bytes and headers in, what is wrong out.
 * Not here: what a method means (router).
 *
 * Invariant: nothing is handed on whose headers and body two readers could take for two requests.
 */
import type { Principal } from '../../policy/call.js';
import { LEGACY_VERSIONS, META, MODERN_ERRORS, MODERN_VERSION } from '../../session/versions.js';
import { decodeHeaderValue } from '../../wire/header-value.js';
import { memberBytes, membersBytes, stringOf } from '../../wire/json-members.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { EndpointId } from '../endpoint-id.js';
import type { MirroredHeader, RpcFailure } from '../exchange.js';
import { isObject } from './client-capabilities.js';
import type { RequestHead } from './request-head.js';

/** The member of params that `Mcp-Name` repeats. */
const NAMED_BY: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
};

const versionKey = Buffer.from(META.version);
const metaKeys = [META.version, META.clientCapabilities];
const supported = [MODERN_VERSION, ...LEGACY_VERSIONS];
/** A version that somebody made up is told back this far. */
const versionCharsMax = 64;

export const namesModern = (version: string | undefined): boolean => version !== undefined && version >= MODERN_VERSION;

/** Whether params claim to be of an era with metadata, of whichever version. */
export function claimsModern(params: Buffer | undefined): boolean {
  // Nearly no legacy request holds the key anywhere, and looking for it costs less than walking the members. Its letters may
  // be escaped, but then so is a backslash there.
  if (!params?.includes(versionKey) && !params?.includes('\\u')) return false;
  const meta = memberBytes(params, '_meta');
  return isObject(meta) && memberBytes(meta, META.version) !== undefined;
}

export type MirroredArguments = (
  endpoint: EndpointId,
  principal: Principal,
  tool: string,
) => readonly MirroredHeader[] | undefined;

export interface ModernFacts {
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly head: RequestHead;
  /** Of the tool that is called. */
  readonly mirrored: (tool: string) => readonly MirroredHeader[] | undefined;
}

export type ModernCheck =
  | { readonly ok: true; readonly capabilities: Buffer }
  | { readonly ok: false; readonly failure: RpcFailure };

export function checkModernRequest({ method, params, head, mirrored }: ModernFacts): ModernCheck {
  const field = Object.hasOwn(NAMED_BY, method) ? (NAMED_BY[method] as string) : undefined;
  const keys = field === undefined ? ['_meta'] : ['_meta', field, 'arguments'];
  const [meta, name, args] = isObject(params) ? membersBytes(params, keys) : [];
  const [said, capabilities] = isObject(meta) ? membersBytes(meta, metaKeys) : [];
  const version = said && stringOf(said);
  if (version === undefined) return wrong(missing(META.version));
  if (!isObject(capabilities)) return wrong(missing(META.clientCapabilities));

  if (head.protocolVersion !== version) return wrong(mismatch('MCP-Protocol-Version', head.protocolVersion));
  if (version !== MODERN_VERSION) return wrong(unsupported(version));
  if (decoded(head.mcpMethod) !== method) return wrong(mismatch('Mcp-Method', head.mcpMethod));
  if (field !== undefined) {
    const subject = name && stringOf(name);
    if (decoded(head.mcpName) !== subject) return wrong(mismatch('Mcp-Name', head.mcpName));
    if (method === 'tools/call' && subject !== undefined) {
      const header = mirrored(subject)?.find((each) => !isMirrored(each, args, head));
      if (header) return wrong(mismatch(`Mcp-Param-${header.name}`, head.other(paramName(header))));
    }
  }
  return { ok: true, capabilities };
}

/** A notification needs no metadata; what it repeats must agree all the same. */
export function checkModernNotification({
  method,
  params,
  head,
}: Omit<ModernFacts, 'mirrored'>): RpcFailure | undefined {
  if (head.mcpMethod !== undefined && decoded(head.mcpMethod) !== method) return mismatch('Mcp-Method', head.mcpMethod);
  const meta = isObject(params) ? memberBytes(params, '_meta') : undefined;
  const said = isObject(meta) ? memberBytes(meta, META.version) : undefined;
  const version = said === undefined ? head.protocolVersion : stringOf(said);
  if (version !== head.protocolVersion) return mismatch('MCP-Protocol-Version', head.protocolVersion);
  return version === MODERN_VERSION ? undefined : unsupported(version ?? '');
}

const decoded = (value: string | undefined): string | undefined =>
  value === undefined ? undefined : decodeHeaderValue(value);

const paramName = ({ name }: MirroredHeader): string => `mcp-param-${name.toLowerCase()}`;

/** An argument that is absent or null has no header; any other has exactly its own value there. */
function isMirrored(header: MirroredHeader, args: Buffer | undefined, head: RequestHead): boolean {
  const raw = head.other(paramName(header));
  let at = args;
  for (const key of header.path) at = isObject(at) ? memberBytes(at, key) : undefined;
  if (at === undefined || at.equals(nullText)) return raw === undefined;
  if (raw === undefined) return false;
  const value = decodeHeaderValue(raw);
  if (value === undefined) return false;
  const text = stringOf(at);
  if (text !== undefined) return text === value;
  const written = at.toString('latin1');
  return written === value || isSameInteger(written, value);
}

const nullText = Buffer.from('null');
const integer = /^-?(0|[1-9][0-9]*)$/;

/** `1e1` and `10` are one number, as far as numbers can tell. */
function isSameInteger(written: string, value: string): boolean {
  const number = Number(written);
  return integer.test(value) && Number.isSafeInteger(number) && number === Number(value);
}

const wrong = (failure: RpcFailure): ModernCheck => ({ ok: false, failure });

const missing = (key: string): RpcFailure => ({
  code: RPC.invalidParams,
  message: `params._meta must hold ${key}, once; every request of protocol ${MODERN_VERSION} carries it`,
  httpStatus: 400,
});

/** Neither value is quoted: a header may hold what is none of the body's business. */
const mismatch = (header: string, value: string | undefined): RpcFailure => ({
  code: MODERN_ERRORS.headerMismatch,
  message: `the header ${header} ${value === undefined ? 'is missing' : 'says something else than the body'}; send what the body says`,
  httpStatus: 400,
});

const unsupported = (version: string): RpcFailure => ({
  code: MODERN_ERRORS.unsupportedVersion,
  message: 'this protocol version is not spoken here; use one of those in data.supported',
  data: JSON.stringify({ supported, requested: version.slice(0, versionCharsMax) }),
  httpStatus: 400,
});
