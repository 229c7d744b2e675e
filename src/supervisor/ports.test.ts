import { expect, test } from 'vitest';
import { type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import { classifyFailure } from './ports.js';

test.each<[ErrorCode, HostErrorOptions, string]>([
  ['connect_failed', { reason: 'ENOENT' }, 'permanent'],
  ['connect_failed', { reason: 'EACCES' }, 'permanent'],
  ['connect_failed', { reason: 'ENOTDIR' }, 'permanent'],
  ['connect_failed', { reason: 'sandbox_unavailable' }, 'permanent'],
  ['connect_failed', { reason: 'sandbox_path' }, 'permanent'],
  ['connect_failed', { reason: 'sandbox_home' }, 'permanent'],
  ['connect_failed', { reason: 'unsupported_platform' }, 'permanent'],
  ['connect_failed', { reason: 'ECONNREFUSED' }, 'transient'],
  ['connect_failed', { reason: 'EMFILE' }, 'transient'],
  ['transport', { reason: 'ENOENT' }, 'transient'],
  ['transport', { reason: 'exit', exitCode: 126 }, 'permanent'],
  ['transport', { reason: 'exit', exitCode: 127 }, 'permanent'],
  ['transport', { reason: 'exit', exitCode: 1 }, 'transient'],
  ['protocol_error', { reason: 'no_common_version' }, 'permanent'],
  ['protocol_error', { reason: 'not_mcp', httpStatus: 404 }, 'permanent'],
  ['protocol_error', { reason: 'rpc_error' }, 'transient'],
  ['protocol_error', { reason: 'http_status', httpStatus: 404 }, 'transient'],
  ['protocol_error', { reason: 'content_type', httpStatus: 200 }, 'transient'],
  ['transport', { reason: 'http_status', httpStatus: 502 }, 'transient'],
  ['overloaded', { reason: 'http_status', httpStatus: 503 }, 'transient'],
  ['invalid_spec', {}, 'permanent'],
  ['timeout', { reason: 'start_timeout' }, 'transient'],
  ['needs_reauth', {}, 'auth'],
])('a failure %s with details %o is %s', (code, details, kind) => {
  expect(classifyFailure(new HostError(code, 'm', details))).toBe(kind);
});

test('an error that is no HostError is transient, whatever its text', () => {
  expect(classifyFailure(new Error('ENOENT 127 needs_reauth'))).toBe('transient');
  expect(classifyFailure(undefined)).toBe('transient');
});
