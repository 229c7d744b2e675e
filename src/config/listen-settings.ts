/**
 * `listen` and `log` of the configuration: where clients find us, and how much is told. Options of the command line win.
 */
import { z } from 'zod';

/** One above 8382; nobody else has it. */
export const portDefault = 8383;
export const hostDefault = '127.0.0.1';
const namesMax = 100;
const names = (of: string) =>
  z
    .array(z.string(`must be a list of ${of}`).min(1, 'must not be empty').max(256, 'is too long'))
    .max(namesMax, `has more than ${namesMax} entries`)
    .default([]);

export const listenEntry = z.strictObject({
  host: z.string('must be an address').min(1, 'must not be empty').max(255, 'is too long').default(hostDefault),
  port: z
    .int('must be a whole number')
    .min(0, 'must be from 0 to 65535')
    .max(65_535, 'must be from 0 to 65535')
    .default(portDefault),
  allowedHosts: names('hosts'),
  allowedOrigins: names('origins'),
});

export const logLevels = ['error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof logLevels)[number];

export const logEntry = z.strictObject({
  level: z.enum(logLevels, `must be one of ${logLevels.join(', ')}`).default('info'),
});

export type ListenSettings = Readonly<z.infer<typeof listenEntry>>;
export type LogSettings = Readonly<z.infer<typeof logEntry>>;
