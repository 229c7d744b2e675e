/** Schemas of `listen` and `log` in the configuration. Options of the command line take precedence. */
import * as z from 'zod/mini';
import { parseDuration } from './values.js';

const portDefault = 8383;
const hostDefault = '127.0.0.1';
const namesMax = 100;
const names = (of: string) =>
  z._default(
    z
      .array(
        z.string(`must be a list of ${of}`).check(z.minLength(1, 'must not be empty'), z.maxLength(256, 'is too long')),
      )
      .check(z.maxLength(namesMax, `has more than ${namesMax} entries`)),
    [],
  );

export const port = z
  .int('must be a whole number')
  .check(z.minimum(0, 'must be from 0 to 65535'), z.maximum(65_535, 'must be from 0 to 65535'));

const file = z.string('must be a path').check(z.minLength(1, 'must not be empty'), z.maxLength(4_096, 'is too long'));

const tls = z.strictObject({ cert: file, key: file }, 'must be an object with cert and key');

export const listenEntry = z.strictObject({
  host: z._default(
    z.string('must be an address').check(z.minLength(1, 'must not be empty'), z.maxLength(255, 'is too long')),
    hostDefault,
  ),
  port: z._default(port, portDefault),
  allowedHosts: names('hosts'),
  allowedOrigins: names('origins'),
  tls: z.optional(tls),
  drain: z._default(
    z
      .union([z.number(), z.string()], 'must be a duration like 10s, or 0')
      .check(z.refine((drain) => isDrain(drain), 'must be a duration like 10s, or 0')),
    '10s',
  ),
});

const isNoDrain = (drain: number | string): boolean => drain === 0 || drain === '0';

function isDrain(drain: number | string): boolean {
  try {
    return isNoDrain(drain) || parseDuration(drain, 'listen.drain') > 0;
  } catch {
    return false;
  }
}

export const drainMsOf = ({ drain }: Pick<ListenSettings, 'drain'>): number =>
  isNoDrain(drain) ? 0 : parseDuration(drain, 'listen.drain');

export const logLevels = ['error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof logLevels)[number];

export const logEntry = z.strictObject({
  level: z._default(z.enum(logLevels, `must be one of ${logLevels.join(', ')}`), 'info'),
});

export type ListenSettings = Readonly<z.infer<typeof listenEntry>>;
export type LogSettings = Readonly<z.infer<typeof logEntry>>;
