import { expect, test } from 'vitest';
import { toolItem } from '../../test/fakes/pin-samples.js';
import { memoryPinStore } from '../policy/pin-records.js';
import { type PinItem, Pins } from '../policy/pins.js';
import { approvalEvent, schemaEvents } from './schema-events.js';

const first = toolItem();
const changed = toolItem({ annotations: { readOnlyHint: true } });

function setUp() {
  const pins = new Pins({ store: memoryPinStore() });
  const now = new Date(0);
  const list = (...items: PinItem[]) => schemaEvents(pins.observe('github', items, now).changes);
  const record = () => pins.recordOf('github', 'get_issue');
  const approve = (hash: string) => {
    const before = record();
    pins.approve('github', 'get_issue', hash, now);
    return approvalEvent('get_issue', before, record());
  };
  return { list, record, approve };
}

test('first sight, a change and its approval are each reported once, with the hash before and after', () => {
  const { list, record, approve } = setUp();
  const seen = list(first);
  const oldHash = record()?.approved?.hash;
  expect(seen).toMatchObject([{ tool: 'get_issue', status: 'approved', oldHash: undefined, newHash: oldHash }]);
  expect(list(first)).toEqual([]);

  const change = list(changed);
  const newHash = record()?.pending?.hash as string;
  expect(change).toMatchObject([{ status: 'changed', oldHash, newHash }]);
  expect(newHash).not.toBe(oldHash);
  expect(list(changed)).toEqual([]);

  expect(approve(newHash)).toMatchObject({ kind: 'schema', tool: 'get_issue', status: 'approved', oldHash, newHash });
  expect(approve(newHash)).toBeUndefined();
  expect(list(changed)).toEqual([]);
});

test('a removed, a renamed and a new tool are each reported with their hashes', () => {
  const { list, record } = setUp();
  list(first);
  const oldHash = record()?.approved?.hash;
  const renamed = toolItem({ name: 'fetch_issue' });
  const other = toolItem({ name: 'list_issues', title: 'List issues', description: 'Lists.' });
  const byTool = new Map(list(renamed, other).map((event) => [event.tool, event]));
  expect(byTool.get('get_issue')).toMatchObject({ status: 'removed', oldHash, newHash: undefined });
  expect(byTool.get('fetch_issue')).toMatchObject({ status: 'renamed', oldHash: undefined, renamedFrom: 'get_issue' });
  expect(byTool.get('list_issues')).toMatchObject({ status: 'new', oldHash: undefined, renamedFrom: undefined });
});
