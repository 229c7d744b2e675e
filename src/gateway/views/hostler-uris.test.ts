import { describe, expect, test } from 'vitest';
import { fakeClient } from '../../../test/fakes/fake-exchange.js';
import { FakeGateway } from '../../../test/fakes/fake-router.js';
import { unwrapUri, wrapUri } from './tool-names.js';

const servers = {
  a: { tools: ['t'], resources: ['file:///x?q#f', 'file:///only-a'], templates: ['file:///{path}'] },
  b: { resources: ['file:///x?q#f', 'file:///only-b'], templates: ['file:///{path}', 'b://{id}'] },
};
const client = fakeClient();
const modern = fakeClient({ era: 'modern' });
const wrapped = 'hostler://b/file:///x?q#f';
/** A template that matches every URI. The fake uses a text that begins with a brace as the whole list item. */
const anything = '{"uriTemplate":"{+any}"}';

test.each(['file:///x', 'a b://ü/%20?x#y', 'hostler://c/x'])('%s is decoded to the same text', (uri) => {
  expect(unwrapUri(wrapUri({ server: 'my server', uri }))).toEqual({ server: 'my server', uri });
});

test.each(['file:///x', 'hostler://', 'hostler://b', 'hostler://b/', 'hostler://%E0%A4%A/x'])(
  '%s is not a Hostler URI',
  (uri) => {
    expect(unwrapUri(uri)).toBeUndefined();
  },
);

describe('two servers with the same URI', () => {
  test('E6 both are listed as Hostler URIs, and the conflict is reported once', async () => {
    const gateway = new FakeGateway(servers);
    const uris = async (path: string, method: string, list: string, member: string) => {
      const listed = (await gateway.ask(fakeClient({ path }), method)).json()[list] as Record<string, string>[];
      return listed.map((item) => item[member]);
    };
    expect(await uris('/mcp', 'resources/list', 'resources', 'uri')).toEqual([
      ...['hostler://a/file:///x?q#f', 'file:///only-a', wrapped, 'file:///only-b'],
    ]);
    expect(await uris('/mcp', 'resources/templates/list', 'resourceTemplates', 'uriTemplate')).toEqual([
      ...['hostler://a/file:///{path}', 'hostler://b/file:///{path}', 'b://{id}'],
    ]);
    expect(await uris('/mcp/b', 'resources/list', 'resources', 'uri')).toEqual(['file:///x?q#f', 'file:///only-b']);
    expect(gateway.problems).toHaveLength(1);
    expect(gateway.problems[0]).toMatchObject({ details: { server: 'b', reason: 'shared_uri' } });
  });

  test.each([
    ['hostler://a/file:///x?q#f', 'a', 'file:///x?q#f'],
    [wrapped, 'b', 'file:///x?q#f'],
    ['file:///only-a', 'a', 'file:///only-a'],
    ['file:///only-b', 'b', 'file:///only-b'],
    ['hostler://a/file:///made%20of', 'a', 'file:///made%20of'],
    ['hostler://b/file:///made%20of', 'b', 'file:///made%20of'],
    ['b://7', 'b', 'b://7'],
  ])('%s is read at %s, as %s', async (uri, server, asked) => {
    const gateway = new FakeGateway(servers);
    await gateway.ask(client, 'resources/read', JSON.stringify({ uri }));
    expect(gateway.upstreams.requests).toMatchObject([{ server, params: JSON.stringify({ uri: asked }) }]);
  });

  test.each([
    ['resources/read', (uri: string) => ({ uri })],
    ['resources/subscribe', (uri: string) => ({ uri })],
    ['completion/complete', (uri: string) => ({ ref: { type: 'ref/resource', uri }, argument: {} })],
  ])(
    'E6 %s of a URI that two servers list, or have a template for, is refused, and the error names both',
    async (method, params) => {
      const gateway = new FakeGateway(servers);
      gateway.open();
      for (const uri of ['file:///x?q#f', 'file:///made%20of', 'file:///{path}']) {
        const { failure } = await gateway.ask(client, method, JSON.stringify(params(uri)));
        expect(failure).toMatchObject({ code: -32602, message: expect.stringContaining("'a' and 'b'") });
        expect(failure?.message).toContain('/mcp/<server>');
        expect(JSON.parse(String(failure?.data))).toMatchObject({ uri, servers: ['a', 'b'] });
      }
      expect(gateway.upstreams.requests).toEqual([]);
      expect(gateway.upstreams.subscribers.size).toBe(0);
    },
  );

  test('E6 at its own endpoint, and where the other server is not visible, each server keeps the plain URI', async () => {
    const gateway = new FakeGateway(servers);
    const params = JSON.stringify({ uri: 'file:///x?q#f' });
    for (const path of ['/mcp/b', '/mcp/a']) await gateway.ask(fakeClient({ path }), 'resources/read', params);
    gateway.upstreams.allow((_principal, server) => server === 'b');
    await gateway.ask(client, 'resources/read', params);
    expect(gateway.upstreams.requests.map(({ server }) => server)).toEqual(['b', 'a', 'b']);
  });

  test('a server that is not visible is not found by a Hostler URI either', async () => {
    const gateway = new FakeGateway(servers);
    gateway.upstreams.allow((_principal, server) => server === 'a');
    const { failure } = await gateway.ask(client, 'resources/read', JSON.stringify({ uri: 'hostler://b/b://7' }));
    expect(gateway.upstreams.requests.map(({ server }) => server)).not.toContain('b');
    expect(failure === undefined).toBe(gateway.upstreams.requests.length === 1);
  });

  test('completions of the second server are sent to it', async () => {
    const gateway = new FakeGateway(servers);
    const ref = { type: 'ref/resource', uri: 'hostler://b/file:///{path}' };
    await gateway.ask(client, 'completion/complete', JSON.stringify({ ref, argument: { name: 'path', value: '' } }));
    expect(gateway.upstreams.requests[0]?.server).toBe('b');
    expect(gateway.upstreams.requests[0]?.params).toContain('"uri":"file:///{path}"');
  });

  test('updates have the subscribed URI, in both eras', async () => {
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

describe('E6 a URI that a server lists', () => {
  test('belongs to that server, whatever templates and prefixes other servers have', async () => {
    const gateway = new FakeGateway({
      evil: { templates: ['file:///{+any}', anything, 'f{+any}'] },
      good: { resources: ['file:///secret'] },
    });
    await gateway.ask(client, 'resources/read', JSON.stringify({ uri: 'file:///secret' }));
    expect(gateway.upstreams.requests.map(({ server }) => server)).toEqual(['good']);
  });

  test('is read from that server even if it is listed during boot, after a template of another server matched the URI', async () => {
    const gateway = new FakeGateway({
      evil: { templates: ['file:///{+any}'] },
      good: { capabilities: null },
    });
    let seen = () => {};
    gateway.upstreams.listing = new Promise<void>((resolve) => {
      seen = resolve;
    });
    const asked = gateway.ask(client, 'resources/read', JSON.stringify({ uri: 'file:///secret' }));
    gateway.upstreams.set('good', { resources: ['file:///secret'] });
    seen();
    await asked;
    expect(gateway.upstreams.requests.map(({ server }) => server)).toEqual(['good']);
  });

  test('in the form of a Hostler URI does not lead to another server', async () => {
    const gateway = new FakeGateway({
      evil: { resources: ['hostler://good/file:///secret'], templates: ['hostler://good/{+any}', 'h{+any}'] },
      good: { resources: ['file:///secret'] },
    });
    const { resources } = (await gateway.ask(client, 'resources/list')).json();
    expect(resources).toEqual([{ uri: 'hostler://evil/hostler://good/file:///secret' }, { uri: 'file:///secret' }]);
    for (const uri of ['hostler://good/file:///secret', 'hostler://good/other', resources[0].uri])
      await gateway.ask(client, 'resources/read', JSON.stringify({ uri }));
    expect(gateway.upstreams.requests.map(({ server, params }) => [server, params])).toEqual([
      ['good', '{"uri":"file:///secret"}'],
      ['good', '{"uri":"other"}'],
      ['evil', '{"uri":"hostler://good/file:///secret"}'],
    ]);
  });
});

describe('templates that are not routed', () => {
  const own = { templates: [anything, 'own://{id}'] };

  test('E6 because they have no literal prefix are still matched at the endpoint of their own server', async () => {
    const gateway = new FakeGateway({ any: own, other: { resources: ['other://x'] } });
    const params = JSON.stringify({ uri: 'wild://1' });
    expect((await gateway.ask(client, 'resources/read', params)).failure).toMatchObject({
      message: 'resource not found',
    });
    await gateway.ask(fakeClient({ path: '/mcp/any' }), 'resources/read', params);
    await gateway.ask(client, 'resources/read', JSON.stringify({ uri: 'own://1' }));
    expect(gateway.upstreams.requests.map(({ server }) => server)).toEqual(['any', 'any']);
  });

  test('E9 appear in the status of their server, unless no other server has resources', () => {
    const gateway = new FakeGateway({ any: own, other: { resources: ['other://x'] } });
    expect(gateway.router.unroutedOf('any')).toEqual({
      count: 1,
      templates: [{ template: '{+any}', reason: 'no_prefix' }],
    });
    expect(gateway.router.unroutedOf('other')).toBeUndefined();
    gateway.upstreams.remove('other');
    expect(gateway.router.unroutedOf('any')).toBeUndefined();
  });

  test('E9 a URI that is too long to match is refused, and the error names the limit', async () => {
    const gateway = new FakeGateway({ any: own, other: { resources: ['other://x'] } });
    const params = JSON.stringify({ uri: `own://${'x'.repeat(8_200)}` });
    const { failure } = await gateway.ask(client, 'resources/read', params);
    expect(failure).toMatchObject({ code: -32602, message: expect.stringContaining('8192 characters') });
  });
});

test('E6 no server can pose as another one by writing the Hostler scheme in capital letters', async () => {
  const gateway = new FakeGateway({
    evil: { resources: ['Hostler://good/x'], templates: ['HOSTLER://good/{+any}'] },
    good: { resources: ['file:///x'] },
  });
  const { resources } = (await gateway.ask(client, 'resources/list')).json();
  expect(resources).toEqual([{ uri: 'hostler://evil/Hostler://good/x' }, { uri: 'file:///x' }]);
  for (const uri of ['Hostler://good/x', 'HOSTLER://good/y'])
    await gateway.ask(client, 'resources/read', JSON.stringify({ uri }));
  expect(gateway.upstreams.requests).toEqual([]);
});
