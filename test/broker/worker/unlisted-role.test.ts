/** A worker whose role the host does not list: connected, without tools, and with the reason. */
import { expect, test } from 'vitest';
import { HostError } from '../../../src/kernel/errors.js';
import { makeRig, outcomeOf, unconnected } from './worker-rig.js';

const message = "role 'ops' is not listed: this worker may use nothing";
const denied = new HostError('denied', message, { role: 'ops', reason: 'unlisted_role', execution: 'not_executed' });

test('E22 the status and every call of the worker say that its role is not listed', async () => {
  const rig = unconnected({ tools: [] });
  rig.host.denied = denied;
  const states: string[] = [];
  rig.tools.on('state', ({ state, error }) => void states.push(`${state} ${error?.message ?? ''}`));
  await rig.settle();
  expect(states).toEqual([`ready ${message}`]);
  expect(rig.tools.status()).toMatchObject({ state: 'ready', tools: 0, lastError: { code: 'denied', message } });
  const call = rig.tools.execute(undefined, 'fetch_url', {});
  expect(await outcomeOf(call)).toBe('denied not_executed');
  await expect(call).rejects.toMatchObject({ message, details: { tool: 'fetch_url', reason: 'unlisted_role' } });
  expect(rig.host.sendings).toEqual([]);
});

test('E22 the reason goes when the role is listed, and comes back when it is removed', async () => {
  const rig = await makeRig();
  const change = async (reason: HostError | undefined) => {
    rig.host.denied = reason;
    rig.host.setTools(reason ? [] : ['nova/nova_click']);
    rig.broker.notify(() => true, { op: 'manifest_changed', revision: rig.host.revision });
    await rig.clock.advanceAsync(1_000);
  };
  expect(rig.tools.status()).toMatchObject({ state: 'ready', tools: 1, lastError: undefined });
  const errors: (string | undefined)[] = [];
  rig.tools.on('state', ({ error }) => void errors.push(error?.code));
  await change(denied);
  expect(rig.tools.status().lastError?.details.reason).toBe('unlisted_role');
  await change(undefined);
  expect(rig.tools.status()).toMatchObject({ tools: 1, lastError: undefined });
  expect(errors).toEqual(['denied', undefined]);
});
