/** Schema of `secrets` in the configuration: the commands of `${exec:NAME}`, and whether secrets in arguments are refused. */
import * as z from 'zod/mini';
import { parseDuration } from '../values.js';

const text = (max: number) =>
  z.string('must be a text').check(
    z.maxLength(max, 'is too long'),
    z.refine((each) => !each.includes('\0'), 'must not contain NUL'),
  );

const isDuration = (given: number | string): boolean => {
  try {
    return parseDuration(given, 'ttl') > 0;
  } catch {
    return false;
  }
};

const ttl = z
  .union([z.number(), z.string()], 'must be a duration like 1h')
  .check(z.refine(isDuration, 'must be a duration from 1ms to 24h, like 1h'));

const execEntry = z.strictObject({
  argv: z
    .array(text(8_192), 'must be a list: the program and its arguments')
    .check(z.minLength(1, 'must name a program'), z.maxLength(100, 'has too many entries')),
  env: z._default(z.array(text(256)).check(z.maxLength(100, 'has too many entries')), []),
  ttl: z._default(ttl, '1h'),
});

export const secretsEntry = z.strictObject({
  exec: z._default(
    z.record(
      z.string().check(z.regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'is not a valid name of a command')),
      execEntry,
    ),
    {},
  ),
  strict: z._default(z.boolean('must be true or false'), false),
});

export type SecretsSettings = Readonly<z.infer<typeof secretsEntry>>;
export type ExecSource = SecretsSettings['exec'][string];

export const ttlMsOf = ({ ttl: given }: ExecSource): number => parseDuration(given, 'ttl');
