/**
 * Pins are kept for a server's name and for what it is: the program that is started, or the address that is asked. Two servers
 * that share a name, in two hosts on one state folder or one after the other in one host, then never share pins.
 * An attached server has neither: all that are attached under one name share its pins, so that another server under the name is
 * a change of its tools and not a first sight.
 * Not part of it: variables and headers. A renewed token is no reason to take a changed tool for a new one.
 */
import { hash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio, type ServerSpec } from '../config/server-spec.js';
import { compositeKey, namesIn } from '../policy/composite-key.js';
import type { PinStore } from '../policy/pin-store.js';
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

/** Under which the pins of a server are kept. */
export const pinKey = (server: string, origin: string): string => compositeKey(server, origin);

/** Whose pins they are. */
export function pinnedServer(key: string): { readonly server: string; readonly origin: string } {
  const [server = '', origin = ''] = namesIn(key);
  return { server, origin };
}

/** What a server is, whatever it is given. As a hash: arguments and addresses may hold what must not be written down. */
export function originOf(spec: ServerSpec): string {
  const parts = isAttached(spec)
    ? ['attached']
    : isStdio(spec)
      ? [spec.command, spec.args, spec.cwd ?? null]
      : [spec.url];
  return hash('sha256', JSON.stringify(parts), 'base64url');
}

/** Whether both are given the same variables or headers: otherwise one of them may be used by another account. */
export const isGivenSame = (a: ServerSpec, b: ServerSpec): boolean => isDeepStrictEqual(givenTo(a), givenTo(b));

const givenTo = (spec: ServerSpec): unknown =>
  isAttached(spec) ? undefined : isStdio(spec) ? { ...spec.env } : { ...spec.headers };

/** Key for stored lists. Lists that were read with pins off get their own: they were never compared with pins. */
export const listsOriginOf = ({ spec, pins }: ServerDefinition): string =>
  trustsEverything(pins) ? `${originOf(spec)} unpinned` : originOf(spec);
