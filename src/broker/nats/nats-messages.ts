/**
 * Messages that only NATS has: the hello of a worker and its welcome, receipts with the sequence of the store, and whether a host is gone.
 * `seen` is the highest sequence of the store that its sender knows, as a token that only hosts can make (kv-store.ts).
 */
import type { HostError } from '../../kernel/errors.js';
import { isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { readError } from '../protocol/error-codec.js';
import { idIn, invalid, protocolVersion, requireVersion } from '../protocol/messages.js';

export interface Welcome {
  readonly name: string;
  readonly role: string | undefined;
  readonly storeId: string;
  readonly seen: string;
}

const head = (op: string): string => `{"v":${protocolVersion},"op":"${op}"`;

/** Also says bye. `connection`: of the session, which may have a newer one. `seen`: from the last host. */
export interface Hello {
  readonly connection: string;
  readonly seen: string;
}

export const writeHello = ({ connection, seen }: Hello): string =>
  `${head('hello')},"connection":"${connection}","seen":"${seen}"}`;

export function readHello(bytes: Buffer): Hello {
  const [v, connection, seen] = uniqueMembers(bytes, ['v', 'connection', 'seen']) ?? [];
  requireVersion(v);
  return { connection: idIn('connection', connection), seen: tokenIn(seen) };
}

export const writeWelcome = ({ name, role, storeId, seen }: Welcome): string =>
  `${head('welcome')},${JSON.stringify({ name, role, storeId, seen }).slice(1)}`;

/** Returns the error of a host that refuses the worker. */
export function readWelcome(bytes: Buffer): Welcome | HostError {
  const members = uniqueMembers(bytes, ['v', 'name', 'role', 'storeId', 'seen', 'error']) ?? [];
  const [v, name, role, storeId, seen, error] = members;
  const code = 'protocol_error';
  requireVersion(v, code);
  if (isObject(error)) return readError(error);
  return {
    ...{ name: idIn('name', name, code), role: role && stringOf(role) },
    ...{ storeId: idIn('storeId', storeId, code), seen: tokenIn(seen) },
  };
}

/** A receipt as in protocol/messages.ts, with what the host has seen. */
export const writeReceipt = (receipt: { key: string; owner: string; storeId: string; seen: string }): string =>
  `${head('receipt')},${JSON.stringify(receipt).slice(1)}`;

export function readSeen(bytes: Buffer): string {
  const [seen] = uniqueMembers(bytes, ['seen']) ?? [];
  return tokenIn(seen);
}

export const writeOwnerState = (isGone: boolean): string => `${head('owner')},"gone":${isGone}}`;

export function readOwnerState(bytes: Buffer): boolean {
  const [gone] = uniqueMembers(bytes, ['gone']) ?? [];
  return gone?.toString() === 'true';
}

function tokenIn(value: Buffer | undefined): string {
  const read = (value && stringOf(value)) ?? '';
  if (/^[A-Za-z0-9_.-]{0,100}$/.test(read)) return read;
  throw invalid('seen', 'must be as a host wrote it');
}
