/**
 * The origin of a server: a hash of the program that is started or the address that is called. Pins and lists are stored by name and
 * origin, so two servers that share only a name, in one host or in two hosts on one state folder, share neither.
 * Attached servers have one origin: another server under the name is a change of its tools, not a new server.
 * Variables and headers are not part of it: a renewed token must not turn a changed tool into a new one.
 */
import { hash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
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

/** Key under which the pins of a server are stored. */
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

/** With other variables or headers a server may be used by another account. */
export const hasSameInputs = (a: ServerSpec, b: ServerSpec): boolean => isDeepStrictEqual(inputsOf(a), inputsOf(b));

const inputsOf = (spec: ServerSpec): unknown =>
  isAttached(spec) ? undefined : isStdio(spec) ? { ...spec.env } : { ...spec.headers };

/** Key for stored lists. Lists that were read with pins off get their own: they were never compared with pins. */
export const listsOriginOf = ({ spec, pins }: ServerDefinition): string =>
  trustsEverything(pins) ? `${originOf(spec)} unpinned` : originOf(spec);
