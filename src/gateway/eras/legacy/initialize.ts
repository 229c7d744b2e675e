/** Reads the params of `initialize`: the protocol version and the capabilities of the client. */

import { unpooledCopy } from '../../../kernel/byte-buffer.js';
import { BytesMemo } from '../../../kernel/bytes-memo.js';
import { isLegacyVersion, NEWEST_LEGACY_VERSION } from '../../../session/eras/legacy/revisions.js';
import { isObject, memberBytes, memberString } from '../../../wire/json-members.js';
import { capabilitiesBytesMax, DeclaredCapabilities } from '../../bridge/client-capabilities.js';
import { type ClientCapabilities, invalidParams, type RpcFailure } from '../../exchange.js';

export interface Initialize {
  /** Version of the client if Hostler supports it, else the newest legacy version. */
  readonly version: string;
  readonly capabilities: ClientCapabilities;
}

const nothing = new DeclaredCapabilities(undefined);
/** Sessions with equal capabilities share one copy, which does not keep the message in memory. */
const declared = new BytesMemo<DeclaredCapabilities>();
const copyOf = (bytes: Buffer): DeclaredCapabilities => new DeclaredCapabilities(unpooledCopy(bytes));
const always = (): boolean => true;

export function readInitialize(params: Buffer | undefined): Initialize | RpcFailure {
  if (!isObject(params)) return invalidParams('params must be an object');
  const version = memberString(params, 'protocolVersion');
  if (version === undefined) return invalidParams('params.protocolVersion must be a string');
  const bytes = memberBytes(params, 'capabilities');
  if (bytes && (!isObject(bytes) || bytes.length > capabilitiesBytesMax))
    return invalidParams('params.capabilities must be an object of at most 64 KiB');
  const capabilities = bytes ? declared.of(bytes, copyOf, always) : nothing;
  return { version: isLegacyVersion(version) ? version : NEWEST_LEGACY_VERSION, capabilities };
}
