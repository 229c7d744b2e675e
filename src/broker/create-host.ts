/** The `createHost` of the library. Calls with an `idempotencyKey` use a log of calls, which the first such call opens. */
import path from 'node:path';
import { createHost as createPlainHost, type Host } from '../host/host.js';
import type { HostConfig, HostOptions } from '../host/host-interface.js';
import type { KeyedCalls } from '../host/keyed-calls.js';
import { systemClock } from '../kernel/clock.js';

export async function createHost(config: HostConfig, options: HostOptions = {}): Promise<Host> {
  const host = await createPlainHost(config, options);
  let opened: Promise<KeyedCalls> | undefined;
  const open = (): Promise<KeyedCalls> => {
    opened ??= openKeyedCalls(options).catch((error) => {
      // The next call tries again.
      opened = undefined;
      throw error;
    });
    return opened;
  };
  host.useKeyedCalls({
    run: async (call) => (await open()).run(call),
    close: async () => (await opened?.catch(() => undefined))?.close(),
  });
  return host;
}

async function openKeyedCalls({
  stateDir,
  clock = systemClock,
  onProblem = () => {},
}: HostOptions): Promise<KeyedCalls> {
  const [{ keyedCalls }, { openSqliteCallLog }] = await Promise.all([
    import('./keyed-calls.js'),
    import('./calls/sqlite/sqlite-call-log.js'),
  ]);
  const folder = stateDir === undefined ? undefined : path.join(stateDir, 'calls');
  return keyedCalls(await openSqliteCallLog({ folder, clock, onProblem }), clock, true, onProblem);
}
