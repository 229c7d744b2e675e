/**
 * The origin of a server: a hash of its program or address. Pins and lists are stored by name and origin, so servers that share
 * only a name (even in two hosts with one state folder) share neither. All attached servers have the same origin: another
 * server under the name counts as a change of tools, not as a new server. The origin excludes variables and headers: a renewed
 * token must not turn a changed tool into a new one.
 */
import { hash } from 'node:crypto';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio, type ServerSpec } from '../config/server-spec.js';
import { compositeKey } from '../policy/composite-key.js';
import type { PinStore } from '../policy/pin-records.js';
import { trustsEverything } from '../policy/pins.js';

export function pinsByOrigin(store: PinStore, specOf: (server: string) => ServerSpec): PinStore {
  const keyOf = (server: string) => pinKey(server, originOf(specOf(server)));
  return {
    load: (server) => store.load(keyOf(server)),
    loadStatuses: (server) => store.loadStatuses?.(keyOf(server)),
    save: (server, records) => store.save(keyOf(server), records),
    saveSoon: (server, records, onFailed) =>
      store.saveSoon ? store.saveSoon(keyOf(server), records, onFailed) : store.save(keyOf(server), records),
  };
}

export const pinKey = (server: string, origin: string): string => compositeKey(server, origin);

/** A hash, because arguments and addresses may contain secrets. */
export function originOf(spec: ServerSpec): string {
  const parts = isAttached(spec)
    ? ['attached']
    : isStdio(spec)
      ? [spec.command, spec.args, spec.cwd ?? null]
      : [spec.url];
  return hash('sha256', JSON.stringify(parts), 'base64url');
}

const inputsHashChars = 6;

/**
 * Hash of the variables or headers of a server, which may belong to another account; undefined for an attached server. It is stored with
 * lists in state.db, which only its user can read: a reader who knows all other values can confirm a guess of a weak secret with it.
 */
export function inputsHashOf(spec: ServerSpec): string | undefined {
  if (isAttached(spec)) return undefined;
  const inputs = Object.entries((isStdio(spec) ? spec.env : spec.headers) ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return hash('sha256', JSON.stringify(inputs), 'base64url').slice(0, inputsHashChars);
}

/** Lists that were read with pins off get their own key, because they were never compared with pins. */
export const listsOriginOf = ({ spec, pins }: ServerDefinition): string =>
  trustsEverything(pins) ? `${originOf(spec)} unpinned` : originOf(spec);
