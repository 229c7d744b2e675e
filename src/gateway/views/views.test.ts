import { expect, test } from 'vitest';
import { fakeClient, principalOf } from '../../../test/fakes/fake-exchange.js';
import { FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { parseHostConfig } from '../../config/host-config.js';
import { HostRules } from '../../host/host-rules.js';
import { denial } from '../../policy/allowlist.js';
import { Views } from './views.js';

test('E11 when an edit changes several servers, each appears as soon as its own change is done', () => {
  const { endpoint } = fakeClient();
  const upstreams = new FakeUpstreams({ a: { tools: ['t'] }, b: { tools: ['t'] }, c: { tools: ['t'] } });
  const rules = new HostRules(() => undefined);
  upstreams.allow(
    (principal, server, tool) =>
      denial(() => rules.guards, { principal, server, tool, action: tool === undefined ? 'list' : 'call' }) ===
      undefined,
  );
  Object.defineProperty(upstreams, 'rulesRevision', { get: () => rules.revision });
  const views = new Views(upstreams);
  const shown = () =>
    views
      .of(endpoint, principalOf('ann'))
      .table('tools/list')
      .entries.map(({ name }) => name);
  rules.configure(
    parseHostConfig({ mcpServers: {} }, () => expect.unreachable()),
    { changing: ['a', 'b'] },
  );
  expect(shown()).toEqual(['c__t']);
  rules.changed('b');
  expect(shown()).toEqual(['b__t', 'c__t']);
  rules.changed('a');
  expect(shown()).toEqual(['a__t', 'b__t', 'c__t']);
  expect(rules.guards).toHaveLength(2);
});
