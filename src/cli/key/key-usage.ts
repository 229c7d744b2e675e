/** Usage of `hostler key`, for its errors. */
import type { HostError } from '../../kernel/errors.js';
import { usageError } from '../command.js';

export const keyUsage =
  'add NAME [--role R|--no-role] [--worker W|--host] [--expires DATE] [--nats] [--key-file FILE] | list [--json] | revoke NAME | nats';

export const keyUsageError = (what: string, hint?: string): HostError =>
  usageError({ name: 'key', usage: keyUsage }, what, hint);
