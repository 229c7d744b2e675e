/**
 * Messages that only NATS has: the hello of a worker and its welcome, receipts with what the host has seen of the store, and whether a host
 * is gone. `seen` is the highest sequence of the store that its sender knows, as a token that only hosts can make (store-id.ts).
 */
import type { HostError } from '../../kernel/errors.js';
import { isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { readError } from '../protocol/error-codec.js';
import { idIn, invalid, protocolVersion, requireVersion } from '../protocol/messages.js';

/** Also says bye. `connection`: of the session, which may have a newer one. */
export interface Hello {
  readonly connection: string;
  readonly seen: string;
}

export interface Welcome {
  readonly name: string;
  readonly role: string | undefined;
  readonly storeId: string;
  readonly seen: string;
}

const write = (op: string, members: object): string => JSON.stringify({ v: protocolVersion, op, ...members });

export const writeHello = (hello: Hello): Buffer => Buffer.from(write('hello', hello));
export const writeWelcome = ({ name, role, storeId, seen }: Welcome): string =>
  write('welcome', { name, role, storeId, seen });
/** As in protocol/messages.ts, with `seen`. */
export const writeReceipt = (receipt: { key: string; owner: string; storeId: string; seen: string }): string =>
  write('receipt', receipt);
export const writeOwnerState = (gone: boolean): string => write('owner', { gone });

export function readHello(bytes: Buffer): Hello {
  const [v, connection, seen] = uniqueMembers(bytes, ['v', 'connection', 'seen']) ?? [];
  requireVersion(v);
  return { connection: idIn('connection', connection), seen: tokenIn(seen) };
}

/** Returns the error of a host that refuses the worker. */
export function readWelcome(bytes: Buffer): Welcome | HostError {
  const code = 'protocol_error';
  const members = uniqueMembers(bytes, ['v', 'name', 'role', 'storeId', 'seen', 'error']) ?? [];
  const [v, name, role, storeId, seen, error] = members;
  requireVersion(v, code);
  if (isObject(error)) return readError(error);
  const known = { name: idIn('name', name, code), role: role && stringOf(role) };
  return { ...known, storeId: idIn('storeId', storeId, code), seen: tokenIn(seen) };
}

export const readSeen = (bytes: Buffer): string => tokenIn(uniqueMembers(bytes, ['seen'])?.[0]);
export const readOwnerState = (bytes: Buffer): boolean => uniqueMembers(bytes, ['gone'])?.[0]?.toString() === 'true';

function tokenIn(value: Buffer | undefined): string {
  const read = (value && stringOf(value)) ?? '';
  if (/^[A-Za-z0-9_.-]{0,100}$/.test(read)) return read;
  throw invalid('seen', 'must be as a host wrote it');
}
