import { expect, test } from 'vitest';
import { memoryApprovals } from '../catalog/store/approvals-table.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Approvals } from './approvals.js';

/** The hash of the approved version, by server. */
function open(approved: Record<string, string>) {
  const servers = new Set(Object.keys(approved));
  const pins = {
    recordOf: (server: string) => {
      if (!servers.has(server)) throw new Error(`${server} is not configured`);
      return { approved: { hash: approved[server] } };
    },
    approve: (server: string, _tool: string, hash: string) => {
      approved[server] = hash;
    },
    undoApproval: (server: string, _tool: string, _hash: string, before: { approved: { hash: string } }) => {
      approved[server] = before.approved.hash;
    },
  };
  const approvals = new Approvals({
    ...{ clock: new FakeClock(), pins: pins as never, log: memoryApprovals(), events: { emit: () => {} } },
    servers: { names: () => [...servers], get: () => ({}) as never },
    listOperations: { reapplyPins: () => {} },
  });
  return { approvals, servers };
}

test('undo takes back the newest approval first; approvals of a removed server can be undone once it is registered again', () => {
  const approved = { a: 'a1', b: 'b1' };
  const { approvals, servers } = open(approved);
  approvals.approve('a', 'tool', 'a2');
  approvals.approve('b', 'tool', 'b2');
  approvals.approve('a', 'tool', 'a3');
  approvals.approve('b', 'tool', 'b3');
  servers.delete('b');
  expect([approvals.undo().server, approvals.undo().server, approved]).toEqual(['a', 'a', { a: 'a1', b: 'b3' }]);
  expect(() => approvals.undo()).toThrow('there is no approval to take back');
  servers.add('b');
  expect([approvals.undo().server, approved.b]).toEqual(['b', 'b2']);
});

test('an approval that was replaced does not block earlier ones', () => {
  const approved = { a: 'a1', b: 'b1' };
  const { approvals } = open(approved);
  approvals.approve('a', 'tool', 'a2');
  approvals.approve('b', 'tool', 'b2');
  approved.b = 'elsewhere';
  expect([approvals.undo().server, approved]).toEqual(['a', { a: 'a1', b: 'elsewhere' }]);
});
