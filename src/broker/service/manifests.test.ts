import { expect, test } from 'vitest';
import { gate, ServiceRig, settled } from '../../../test/fakes/service-rig.js';
import { brokerLimits } from '../protocol/limits.js';
import { readManifestBody } from '../protocol/reply-body.js';

test('D-58 a manifest is made once for a role, and a server that restarts with the same tools changes nothing', async () => {
  const rig = new ServiceRig({ docs: { tools: ['search'] } });
  const worker = rig.worker();
  let asked = 0;
  const isAllowed = rig.host.isAllowed.bind(rig.host);
  rig.host.isAllowed = (...args) => {
    asked++;
    return isAllowed(...args);
  };
  const first = await rig.service.manifest(worker);
  expect(await rig.service.manifest(worker)).toBe(first);
  expect(asked).toBe(1);
  rig.host.set('docs', { tools: ['search'] });
  await rig.clock.advanceAsync(50);
  expect(worker.revisions()).toEqual([]);
  rig.host.set('docs', { tools: ['search', 'read'] });
  rig.host.set('more', { tools: ['x'] });
  await rig.clock.advanceAsync(50);
  expect(worker.revisions()).toHaveLength(1);
  expect(await worker.tools()).toEqual(['search', 'read', 'x']);
});

test('D-58 a manifest waits for servers that were never listed', async () => {
  const rig = new ServiceRig({ docs: { tools: ['search'], capabilities: null } });
  const listing = gate<void>();
  rig.host.listing = listing.promise;
  const worker = rig.worker();
  let body: Buffer | undefined;
  void rig.service.manifest(worker).then((made) => {
    body = made;
  });
  rig.service.connected(worker);
  await settled();
  expect([body, worker.revisions()]).toEqual([undefined, []]);
  rig.host.set('docs', { tools: ['search'] });
  listing.resolve();
  await settled();
  expect(readManifestBody(body as unknown as Buffer).tools).toHaveLength(1);
  expect(worker.revisions()).toHaveLength(1);
});

test('D-44 a worker that connects a thousand times while servers start gets one notification', async () => {
  const rig = new ServiceRig({ docs: { capabilities: null } });
  const listing = gate<void>();
  rig.host.listing = listing.promise;
  const worker = rig.worker();
  for (let times = 0; times < 1_000; times++) rig.service.connected(worker);
  listing.resolve();
  await settled();
  expect(worker.revisions()).toHaveLength(1);
});

test('D-44 two workers whose sessions have the same id are both notified', async () => {
  const rig = new ServiceRig({ docs: { capabilities: null } });
  const listing = gate<void>();
  rig.host.listing = listing.promise;
  const workers = [rig.worker('w1', 'r1', 's'), rig.worker('w2', 'r1', 's')];
  for (const worker of workers) rig.service.connected(worker);
  listing.resolve();
  await settled();
  expect(workers.map((worker) => worker.revisions().length)).toEqual([1, 1]);
});

test('D-48 a worker that connects gets the revision of the current manifest', async () => {
  const rig = new ServiceRig({ docs: { tools: ['search'] } });
  const worker = rig.worker();
  rig.service.connected(worker);
  const { revision } = readManifestBody(await rig.service.manifest(worker));
  expect(worker.revisions()).toEqual([revision]);
});

test('D-48 a manifest that cannot be made is reported as a problem, and is made at the next request for it', async () => {
  const rig = new ServiceRig({ docs: { tools: ['search'] } });
  const worker = rig.worker();
  await worker.tools();
  const isAllowed = rig.host.isAllowed.bind(rig.host);
  rig.host.isAllowed = () => {
    throw new Error('guard');
  };
  rig.host.set('docs', { tools: ['read'] });
  await rig.clock.advanceAsync(50);
  expect(worker.revisions()).toEqual([]);
  expect(rig.events).toMatchObject([{ kind: 'problem' }]);
  await expect(worker.tools()).rejects.toMatchObject({ code: 'protocol_error' });
  rig.host.isAllowed = isAllowed;
  expect(await worker.tools()).toEqual(['read']);
});

test('a manifest that is too large is an error that names the role and the server, and calls still work', async () => {
  const large = JSON.stringify({ name: 'large', description: 'x'.repeat(brokerLimits.manifestBytes) });
  const rig = new ServiceRig({ docs: { tools: ['search'] }, big: { tools: [large] } });
  const worker = rig.worker('w1', 'researcher');
  expect(() => readManifestBody(Buffer.alloc(0))).toThrow();
  await expect(worker.tools()).rejects.toMatchObject({
    code: 'result_too_large',
    message: expect.stringMatching(/role 'researcher'/),
    details: { server: 'big', reason: 'manifest_too_large', limit: brokerLimits.manifestBytes },
  });
  expect(rig.service.status().tooLarge).toEqual(['big']);
  await worker.call('k1', 'search');
  expect(worker.outcome('k1')).toBe('{"content":[]}');
});
