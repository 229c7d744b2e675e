import { describe, expect, test } from 'vitest';
import { fakeClient } from '../../../test/fakes/fake-exchange.js';
import { FakeGateway } from '../../../test/fakes/fake-router.js';
import { unwrapUri, wrapUri } from './shared-uris.js';

const servers = {
  a: { tools: ['t'], resources: ['file:///x?q#f', 'file:///only-a'], templates: ['file:///{path}'] },
  b: { resources: ['file:///x?q#f', 'file:///only-b'], templates: ['file:///{path}', 'b://{id}'] },
};
const client = fakeClient();
const modern = fakeClient({ era: 'modern' });
const wrapped = 'hostler://b/file:///x?q#f';

test.each(['file:///x', 'a b://ü/%20?x#y', 'hostler://c/x'])('%s comes out as it went in', (uri) => {
  expect(unwrapUri(wrapUri({ server: 'my server', uri }))).toEqual({ server: 'my server', uri });
});

test.each(['file:///x', 'hostler://', 'hostler://b', 'hostler://b/', 'hostler://%E0%A4%A/x'])(
  '%s is not ours',
  (uri) => {
    expect(unwrapUri(uri)).toBeUndefined();
  },
);

describe('of two servers with the same URI', () => {
  test('both are listed, the second behind ours, which is told once', async () => {
    const gateway = new FakeGateway(servers);
    const uris = async (path: string, method: string, list: string, member: string) => {
      const listed = (await gateway.ask(fakeClient({ path }), method)).json()[list] as Record<string, string>[];
      return listed.map((item) => item[member]);
    };
    expect(await uris('/mcp', 'resources/list', 'resources', 'uri')).toEqual([
      ...['file:///x?q#f', 'file:///only-a', wrapped, 'file:///only-b'],
    ]);
    expect(await uris('/mcp', 'resources/templates/list', 'resourceTemplates', 'uriTemplate')).toEqual([
      ...['file:///{path}', 'hostler://b/file:///{path}', 'b://{id}'],
    ]);
    expect(await uris('/mcp/b', 'resources/list', 'resources', 'uri')).toEqual(['file:///x?q#f', 'file:///only-b']);
    expect(gateway.problems).toHaveLength(1);
    expect(gateway.problems[0]).toMatchObject({ details: { server: 'b', reason: 'shared_uri' } });
  });

  test.each([
    ['file:///x?q#f', 'a', 'file:///x?q#f'],
    [wrapped, 'b', 'file:///x?q#f'],
    ['file:///made%20of', 'a', 'file:///made%20of'],
    ['hostler://b/file:///made%20of', 'b', 'file:///made%20of'],
    ['b://7', 'b', 'b://7'],
  ])('%s is read at %s, as %s', async (uri, server, asked) => {
    const gateway = new FakeGateway(servers);
    await gateway.ask(client, 'resources/read', JSON.stringify({ uri }));
    expect(gateway.upstreams.requests).toMatchObject([{ server, params: JSON.stringify({ uri: asked }) }]);
  });

  test('a server that is not seen is not found behind ours either', async () => {
    const gateway = new FakeGateway(servers);
    gateway.upstreams.allow((_principal, server) => server === 'a');
    const { failure } = await gateway.ask(client, 'resources/read', JSON.stringify({ uri: 'hostler://b/b://7' }));
    expect(gateway.upstreams.requests.map(({ server }) => server)).not.toContain('b');
    expect(failure === undefined).toBe(gateway.upstreams.requests.length === 1);
  });

  test('completions of the second go there', async () => {
    const gateway = new FakeGateway(servers);
    const ref = { type: 'ref/resource', uri: 'hostler://b/file:///{path}' };
    await gateway.ask(client, 'completion/complete', JSON.stringify({ ref, argument: { name: 'path', value: '' } }));
    expect(gateway.upstreams.requests[0]?.server).toBe('b');
    expect(gateway.upstreams.requests[0]?.params).toContain('"uri":"file:///{path}"');
  });

  test('updates are of what was subscribed to, in both eras', async () => {
    const gateway = new FakeGateway(servers);
    const session = gateway.open();
    await gateway.ask(client, 'resources/subscribe', JSON.stringify({ uri: wrapped }));
    const stream = gateway.send(
      modern,
      'subscriptions/listen',
      JSON.stringify({ notifications: { resourceSubscriptions: [wrapped] } }),
    );
    await new Promise((resolve) => setImmediate(resolve));
    gateway.upstreams.update('a', 'file:///x?q#f');
    gateway.upstreams.update('b', 'file:///x?q#f');
    expect(session.heard).toEqual([
      { method: 'notifications/resources/updated', params: JSON.stringify({ uri: wrapped }) },
    ]);
    expect(stream.heard.at(-1)?.params).toContain(JSON.stringify(wrapped));
    await gateway.ask(client, 'resources/unsubscribe', JSON.stringify({ uri: wrapped }));
    expect(gateway.upstreams.subscribers.get('b file:///x?q#f')?.size).toBe(1);
  });
});
