/** A worker whose role the host does not list: connected, without tools, and with the reason. */
import { expect, test } from 'vitest';
import { manifestReply } from '../../../src/broker/messages.js';
import { unlistedRole } from '../../../src/broker/service/role-denials.js';
import { makeRig, outcomeOf, unconnected } from './worker-rig.js';

const denied = unlistedRole('ops');
const refusal = manifestReply({ revision: 'none', tools: [], denied }).toString();

test('E22 the status and every call of the worker say that its role is not listed', async () => {
  const rig = unconnected({ role: 'ops' });
  rig.host.onManifest = () => refusal;
  const states: string[] = [];
  rig.tools.on('state', ({ state, error }) => void states.push(`${state} ${error?.message ?? ''}`));
  await rig.host.connect();
  await rig.settle();
  const message = "role 'ops' is not listed: this worker may use nothing";
  expect(states).toEqual([`ready ${message}`]);
  expect(rig.tools.status()).toMatchObject({ state: 'ready', tools: 0, lastError: { code: 'denied', message } });
  const call = rig.tools.execute(undefined, 'fetch_url', {});
  expect(await outcomeOf(call)).toBe('denied not_executed');
  await expect(call).rejects.toMatchObject({ message, details: { tool: 'fetch_url', reason: 'unlisted_role' } });
  expect(rig.callSends()).toEqual([]);
});

test('E22 the reason goes when the role is listed, and comes when it is taken off', async () => {
  const rig = await makeRig({ role: 'ops' });
  expect(rig.tools.status()).toMatchObject({ state: 'ready', tools: 1, lastError: undefined });
  const errors: (string | undefined)[] = [];
  rig.tools.on('state', ({ error }) => void errors.push(error?.code));
  rig.host.onManifest = () => refusal;
  rig.host.change(['nova/click']);
  await rig.clock.advanceAsync(1_000);
  expect(rig.tools.status().lastError?.details.reason).toBe('unlisted_role');
  rig.host.onManifest = undefined;
  rig.host.change(['nova/click']);
  await rig.clock.advanceAsync(1_000);
  expect(rig.tools.status()).toMatchObject({ tools: 1, lastError: undefined });
  expect(errors).toEqual(['denied', undefined]);
});
