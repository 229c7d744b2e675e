/** The first message of each side of a WebSocket: the worker says who it is, and the host says who it took it for. */
import { HostError } from '../../kernel/errors.js';
import { stringOf, uniqueMembers } from '../../wire/json-members.js';
import { checkValue } from '../../wire/json-text.js';
import { brokerLimits } from '../protocol/limits.js';
import { idIn, invalid, protocolVersion, requireVersion, shortText } from '../protocol/messages.js';
import { keyCharsMax } from './limits.js';

export interface Hello {
  readonly key: string;
  readonly session: string;
}

export interface Welcome {
  readonly worker: string;
  readonly role: string | undefined;
  readonly storeId: string;
}

const text = JSON.stringify;

export const writeHello = ({ key, session }: Hello): Buffer =>
  Buffer.from(`{"v":${protocolVersion},"op":"hello","key":${text(key)},"session":${text(session)}}`);

/** Throws an error that never quotes the key. */
export function readHello(bytes: Buffer): Hello {
  const [v, op, key, session] = members(bytes, ['v', 'op', 'key', 'session']);
  requireVersion(v);
  if ((op && stringOf(op)) !== 'hello') throw invalid('op', 'must be hello in the first message');
  return { key: shortText('key', key, keyCharsMax), session: idIn('session', session) };
}

export const writeWelcome = ({ worker, role, storeId }: Welcome): Buffer => {
  const ofRole = role === undefined ? '' : `,"role":${text(role)}`;
  return Buffer.from(
    `{"v":${protocolVersion},"op":"welcome","worker":${text(worker)}${ofRole},"storeId":${text(storeId)}}`,
  );
};

export function readWelcome(bytes: Buffer): Welcome {
  const code = 'protocol_error';
  const [v, op, worker, role, storeId] = members(bytes, ['v', 'op', 'worker', 'role', 'storeId']);
  requireVersion(v, code);
  if ((op && stringOf(op)) !== 'welcome')
    throw new HostError(code, 'the server at this address did not answer as a broker', {
      execution: 'not_executed',
      hint: 'use the address that hostler up prints for workers',
    });
  return {
    worker: shortText('worker', worker, brokerLimits.nameChars, code),
    role: role && shortText('role', role, brokerLimits.nameChars, code),
    storeId: idIn('storeId', storeId, code),
  };
}

function members(bytes: Buffer, names: readonly string[]): (Buffer | undefined)[] {
  checkValue(bytes, 'the message');
  const found = uniqueMembers(bytes, names);
  if (found === undefined) throw invalid('the message', 'is not one JSON object with unique members');
  return found;
}
