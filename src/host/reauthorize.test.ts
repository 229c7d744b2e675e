import { expect, test } from 'vitest';
import { fakeCall } from '../../test/fakes/policy-call.js';
import type { Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import type { TokenRefused } from '../transports/http/auth-token.js';
import type { ManagedServer } from './managed-server.js';
import { reauthorize } from './reauthorize.js';

test.each([
  ['late', 'timeout', 'its deadline passed'],
  ['cancelled', 'cancelled', 'the caller cancelled it'],
] as const)('a %s renewal is reported without control characters of the tool’s name', async (outcome, code, why) => {
  const server = { auth: { recover: async () => outcome } } as unknown as ManagedServer;
  const call = fakeCall({ tool: 'a\u001b[2J\nFAKE' });
  const error = await reauthorize(server, {} as Acquired<Session>, call, {} as TokenRefused);
  expect([error?.code, error?.message]).toEqual([
    code,
    `github/a\\u{1b}[2J\\nFAKE: ${why} while the authorization of server 'github' was renewed`,
  ]);
});
