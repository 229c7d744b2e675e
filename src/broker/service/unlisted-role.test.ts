import { expect, test } from 'vitest';
import { serviceRig, settled } from '../../../test/fakes/service-rig.js';
import { readReply } from '../messages.js';

async function rigWith(...unlisted: string[]) {
  const listed = new Set(unlisted);
  const rig = await serviceRig({ isRolelessAllowed: () => false });
  rig.host.allow(({ role }) => role !== undefined && !listed.has(role));
  Object.assign(rig.host, { isUnlistedRole: (role: string) => listed.has(role) });
  const reported = () => rig.events.flatMap((event) => (event.kind === 'unlisted_role' ? [event] : []));
  return { ...rig, listed, reported };
}

test('E22 the manifest of a role that is not listed says so, and one that is listed says nothing', async () => {
  const { worker, host, listed, service } = await rigWith('ops');
  const ann = await worker('ann', 'ops');
  expect(await ann.tools()).toEqual([]);
  const manifest = ann.replies.map(({ reply }) => reply).find(({ kind }) => kind === 'manifest');
  expect(manifest).toMatchObject({
    manifest: {
      denied: {
        code: 'denied',
        message: "role 'ops' is not listed: this worker may use nothing",
        details: { reason: 'unlisted_role', role: 'ops', execution: 'not_executed' },
        hint: expect.stringContaining('list it under roles'),
      },
    },
  });
  expect(service.status().unlistedRoles).toEqual(['ops']);
  listed.delete('ops');
  host.rulesRevision++;
  expect(await ann.tools()).toHaveLength(3);
  expect(ann.replies.at(-1)?.reply).not.toHaveProperty('manifest.denied.code');
  expect(service.status().unlistedRoles).toEqual([]);
});

test('E22 it is reported once for each role, however many workers come and ask', async () => {
  const { worker, reported } = await rigWith('ops', 'qa');
  const workers = [await worker('ann', 'ops'), await worker('bob', 'ops'), await worker('eve', 'qa')];
  for (const each of workers) for (let asked = 0; asked < 3; asked++) await each.tools();
  expect(reported().map(({ from, error }) => `${from.mailbox}: ${error.message}`)).toEqual([
    "ann: role 'ops' is not listed: this worker may use nothing",
    "eve: role 'qa' is not listed: this worker may use nothing",
  ]);
});

test('E22 a call is refused with the same reason, and so is the manifest of a key without a role', async () => {
  const { worker, host } = await rigWith('ops');
  const ann = await worker('ann', 'ops');
  const key = await ann.call('fetch_url');
  await settled();
  expect(ann.errorOf(key).toJSON()).toMatchObject({
    code: 'denied',
    reason: 'unlisted_role',
    message: "tool 'fetch_url' is not allowed: role 'ops' is not listed",
    execution: 'not_executed',
  });
  expect(host.calls).toEqual([]);
  const roleless = await worker('eve', null);
  expect(await roleless.tools()).toEqual([]);
  expect(roleless.replies.at(-1)?.reply).toMatchObject({ manifest: { denied: { details: { reason: 'no_role' } } } });
});

test('a reason that is no object is ignored, as members that are not known are', () => {
  const body = '{"v":1,"manifest":{"revision":"r","tools":[],"denied":"x"}}';
  expect(readReply(Buffer.from(body))).toEqual({
    kind: 'manifest',
    manifest: { revision: 'r', tools: [], denied: undefined },
  });
});
