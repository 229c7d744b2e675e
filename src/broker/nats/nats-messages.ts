/**
 * Messages that only NATS has: the hello of a worker and its welcome, receipts with the sequence of the store, and whether a host is gone.
 * Invariant: a sequence is the highest one of the bucket of calls that its sender has seen. A store that has less is an older one.
 */
import type { HostError } from '../../kernel/errors.js';
import { isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { readError } from '../protocol/error-codec.js';
import { idIn, invalid, protocolVersion, requireVersion } from '../protocol/messages.js';

export interface Welcome {
  readonly name: string;
  readonly role: string | undefined;
  readonly storeId: string;
  readonly seq: number;
}

const head = (op: string): string => `{"v":${protocolVersion},"op":"${op}"`;

/** Also says bye. `connection`: of the session, which may have a newer one. `seq`: that the worker has seen. */
export interface Hello {
  readonly connection: string;
  readonly seq: number;
}

export const writeHello = ({ connection, seq }: Hello): string =>
  `${head('hello')},"connection":"${connection}","seq":${seq}}`;

export function readHello(bytes: Buffer): Hello {
  const [v, connection, seq] = uniqueMembers(bytes, ['v', 'connection', 'seq']) ?? [];
  requireVersion(v);
  return { connection: idIn('connection', connection), seq: sequence(seq) };
}

export const writeWelcome = ({ name, role, storeId, seq }: Welcome): string =>
  `${head('welcome')},${JSON.stringify({ name, role, storeId, seq }).slice(1)}`;

/** Returns the error of a host that refuses the worker. */
export function readWelcome(bytes: Buffer): Welcome | HostError {
  const members = uniqueMembers(bytes, ['v', 'name', 'role', 'storeId', 'seq', 'error']) ?? [];
  const [v, name, role, storeId, seq, error] = members;
  const code = 'protocol_error';
  requireVersion(v, code);
  if (isObject(error)) return readError(error);
  return {
    ...{ name: idIn('name', name, code), role: role && stringOf(role) },
    ...{ storeId: idIn('storeId', storeId, code), seq: sequence(seq) },
  };
}

/** A receipt as in protocol/messages.ts, with the sequence. */
export const writeReceipt = (receipt: { key: string; owner: string; storeId: string; seq: number }): string =>
  `${head('receipt')},${JSON.stringify(receipt).slice(1)}`;

export function readSequence(bytes: Buffer): number {
  const [seq] = uniqueMembers(bytes, ['seq']) ?? [];
  return sequence(seq);
}

export const writeOwnerState = (isGone: boolean): string => `${head('owner')},"gone":${isGone}}`;

export function readOwnerState(bytes: Buffer): boolean {
  const [gone] = uniqueMembers(bytes, ['gone']) ?? [];
  return gone?.toString() === 'true';
}

function sequence(value: Buffer | undefined): number {
  const read = value === undefined || value.length > 16 ? 0 : Number(value.toString());
  if (Number.isSafeInteger(read) && read >= 0) return read;
  throw invalid('seq', 'must be a whole number');
}
