import { expect, test } from 'vitest';
import type { Host } from '../../host/host.js';
import { HostError } from '../../kernel/errors.js';
import { createOperations, type OperationsParts } from '../control/operations.js';
import { shownError } from './shown-error.js';

const message = "server 'a' is parked (exited with code 1); the next try is in 65 s, or at once by a reload";
const cause = new HostError('transport', "server 'a' exited with code 1", { hint: 'hostler logs a shows its stderr' });
const parked = new HostError('server_parked', message, { cause, server: 'a', hint: 'reload it; hostler logs a' });

async function toolFrames(more: Partial<OperationsParts>): Promise<unknown[]> {
  const frames: unknown[] = [];
  const host = { discover: async () => [{ server: 'a', error: parked }] } as unknown as Host;
  const operations = createOperations({ host, ...more } as OperationsParts);
  await operations.tools?.({}, { signal: new AbortController().signal, emit: (frame) => frames.push(frame) });
  return frames;
}

test('the tools of a parked server: a host that ends now names neither a later try nor a log, which a running one does', async () => {
  expect(await toolFrames({})).toMatchObject([{ server: 'a', error: { code: 'server_parked', message } }]);
  const hint = expect.stringMatching(/^fix the cause and repeat the command/);
  const own = { code: 'server_parked', message: "server 'a' exited with code 1", hint };
  expect(await toolFrames({ shownError })).toMatchObject([{ server: 'a', error: own }]);
});
