/**
 * Finds the members of one frame in its bytes and checks each for what it must be. Bodies are views, never parsed.
 * Invariants: a frame is exactly one JSON object; a member that stands twice, also in disguise, makes it no frame; a member
 * that nobody knows is passed over, so that a newer side may add one.
 */
import { LIMITS } from '../../kernel/limits.js';
import { keyIs, stringOf } from '../../wire/json-members.js';
import { eachMember, scanFacts, scanLimits, skipSpace } from '../../wire/json-scan.js';
import { idPattern, mailboxPattern } from '../ports.js';

const names = [
  ...([
    'kind',
    'v',
    'id',
    'type',
    'to',
    'ttlMs',
    'body',
    'seq',
    'lease',
    'delayMs',
    'reason',
    'key',
    'mailbox',
  ] as const),
  ...([
    'role',
    'from',
    'deliveries',
    'deadlineMs',
    'epoch',
    'error',
    'instance',
    'wasElsewhere',
    'beganMsAgo',
  ] as const),
] as const;

type MemberName = (typeof names)[number];
export type Members = { readonly [name in MemberName]?: Buffer };

/** More than any frame has. */
const membersMax = 32;

export type Scanned =
  | { readonly isWhole: true; readonly members: Members }
  /** `members` are those that were read before it went wrong. */
  | {
      readonly isWhole: false;
      readonly members: Members;
      readonly problem: 'malformed' | 'too_deep' | 'too_many_values';
    };

export function scanFrame(bytes: Buffer, valuesMax: number): Scanned {
  const members: { [name in MemberName]?: Buffer } = {};
  let isDoubled = false;
  let count = 0;
  const before = scanLimits.values;
  scanLimits.values = valuesMax;
  scanFacts.tooDeep = scanFacts.tooMany = false;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (++count > membersMax) return false;
    for (const name of names) {
      if (!keyIs(bytes, keyStart, keyEnd, name)) continue;
      if (members[name] !== undefined) isDoubled = true;
      members[name] = bytes.subarray(valueStart, valueEnd);
      break;
    }
    return !isDoubled;
  });
  scanLimits.values = before;
  if (after >= 0 && !isDoubled && count <= membersMax && skipSpace(bytes, after, bytes.length) === bytes.length)
    return { isWhole: true, members };
  const problem = scanFacts.tooDeep ? 'too_deep' : scanFacts.tooMany ? 'too_many_values' : 'malformed';
  return { isWhole: false, members: isDoubled ? {} : members, problem };
}

/** Of what a worker sends; a host's results may have more. */
export const workerValuesMax = LIMITS.values;

/** Longer than the longest text that any member but a key may have, written in escapes. */
const textBytesMax = 8_192;

export const textOf = (value: Buffer | undefined): string | undefined =>
  value === undefined || value.length > textBytesMax ? undefined : stringOf(value);

export function idOf(value: Buffer | undefined): string | undefined {
  const text = textOf(value);
  return text !== undefined && idPattern.test(text) ? text : undefined;
}

export function mailboxOf(value: Buffer | undefined): string | undefined {
  const text = textOf(value);
  return text !== undefined && mailboxPattern.test(text) ? text : undefined;
}

export function truthOf(value: Buffer | undefined): boolean | undefined {
  const text = value !== undefined && value.length <= 5 ? value.toString('latin1') : undefined;
  return text === 'true' ? true : text === 'false' ? false : undefined;
}

const digits = /^-?(?:0|[1-9][0-9]{0,15})$/;

export function wholeOf(value: Buffer | undefined, min: number, max: number): number | undefined {
  if (value === undefined || value.length > 17) return undefined;
  const text = value.toString('latin1');
  const number = digits.test(text) ? Number(text) : Number.NaN;
  return number >= min && number <= max ? number : undefined;
}
