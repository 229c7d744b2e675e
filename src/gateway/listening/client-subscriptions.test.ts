import { describe, expect, test } from 'vitest';
import { fakeClient, principalOf } from '../../../test/fakes/fake-exchange.js';
import { FakeGateway } from '../../../test/fakes/fake-router.js';
import { deferred } from '../../kernel/deferred.js';
import { HostError } from '../../kernel/errors.js';

const servers = { fs: { tools: ['read'], resources: ['file:///a', 'file:///b'] } };
const client = fakeClient();
const modern = fakeClient({ era: 'modern' });
const uri = '{"uri":"file:///a"}';
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
const listening = (filter: string) => `{"notifications":${filter}}`;

describe('a legacy session', () => {
  test('is notified of the resource it subscribed to, until it unsubscribes', async () => {
    const gateway = new FakeGateway(servers);
    const session = gateway.open();
    expect((await gateway.ask(client, 'resources/subscribe', uri)).result).toBe('{}');
    expect((await gateway.ask(client, 'resources/subscribe', uri)).result).toBe('{}');
    expect(gateway.upstreams.subscribers.get('fs file:///a')?.size).toBe(1);
    expect(gateway.upstreams.subscribedFrom).toEqual([client.id]);
    gateway.upstreams.update('fs', 'file:///a', '{"uri":"file:///a","v":1.0}');
    expect(session.heard).toEqual([
      { method: 'notifications/resources/updated', params: '{"uri":"file:///a","v":1.0}' },
    ]);
    expect((await gateway.ask(client, 'resources/unsubscribe', uri)).result).toBe('{}');
    expect(gateway.upstreams.subscribers.size).toBe(0);
  });

  test('gets updates without the stream id that the server sent to Hostler', async () => {
    const gateway = new FakeGateway(servers);
    const session = gateway.open();
    await gateway.ask(client, 'resources/subscribe', uri);
    const params = '{"uri":"file:///a","_meta":{"io.modelcontextprotocol/subscriptionId":7,"x":1.0}}';
    gateway.upstreams.update('fs', 'file:///a', params);
    expect(session.heard[0]?.params).toBe('{"uri":"file:///a","_meta":{"x":1.0}}');
  });

  test('releases everything at its end, also subscriptions that are answered later', async () => {
    const gateway = new FakeGateway(servers);
    const session = gateway.open();
    await gateway.ask(client, 'resources/subscribe', uri);
    const { promise, resolve } = deferred();
    gateway.upstreams.onSubscribe = () => promise;
    const late = gateway.send(client, 'resources/subscribe', '{"uri":"file:///b"}');
    session.end();
    expect(gateway.upstreams.subscribers.size).toBe(0);
    resolve();
    await late.ended;
    expect(gateway.upstreams.subscribers.size).toBe(0);
    expect(gateway.upstreams.endedInstances).toEqual([session.id]);
    gateway.upstreams.set('fs', { tools: ['other'] });
    gateway.clock.advance(1_000);
    expect(session.heard).toEqual([]);
  });

  test('that unsubscribes before the server has answered keeps no subscription', async () => {
    const gateway = new FakeGateway(servers);
    gateway.open();
    const { promise, resolve } = deferred();
    gateway.upstreams.onSubscribe = () => promise;
    const asked = gateway.send(client, 'resources/subscribe', uri);
    await gateway.ask(client, 'resources/unsubscribe', uri);
    resolve();
    await asked.ended;
    expect(gateway.upstreams.subscribers.size).toBe(0);
  });

  test('that subscribes twice, and unsubscribes in between, has one subscription', async () => {
    const gateway = new FakeGateway(servers);
    const session = gateway.open();
    const waits = [deferred(), deferred()];
    let asked = 0;
    gateway.upstreams.onSubscribe = () => waits[asked++]?.promise;
    const first = gateway.send(client, 'resources/subscribe', uri);
    await gateway.ask(client, 'resources/unsubscribe', uri);
    const second = gateway.send(client, 'resources/subscribe', uri);
    for (const { resolve } of waits) resolve();
    await Promise.all([first.ended, second.ended]);
    expect(gateway.upstreams.subscribers.get('fs file:///a')?.size).toBe(1);
    session.end();
    expect(gateway.upstreams.subscribers.size).toBe(0);
  });

  test('may repeat a failed subscription', async () => {
    const gateway = new FakeGateway(servers);
    gateway.open();
    gateway.upstreams.onSubscribe = () => Promise.reject(new HostError('server_parked', 'parked'));
    expect((await gateway.ask(client, 'resources/subscribe', uri)).failure?.code).toBe(-31011);
    gateway.upstreams.onSubscribe = () => {};
    expect((await gateway.ask(client, 'resources/subscribe', uri)).result).toBe('{}');
  });

  test('can subscribe only while it is open, and only to an existing resource', async () => {
    const gateway = new FakeGateway({ ...servers, web: { resources: [] } });
    expect((await gateway.ask(client, 'resources/subscribe', uri)).failure?.code).toBe(-32600);
    gateway.open();
    expect((await gateway.ask(client, 'resources/subscribe', '{}')).failure?.code).toBe(-32602);
    expect((await gateway.ask(client, 'resources/subscribe', '{"uri":"no://"}')).failure?.code).toBe(-32002);
  });

  test('has at most 100 subscriptions', async () => {
    const gateway = new FakeGateway(servers);
    gateway.open();
    for (let i = 0; i < 100; i++) await gateway.ask(client, 'resources/subscribe', `{"uri":"x://${i}"}`);
    expect((await gateway.ask(client, 'resources/subscribe', uri)).failure?.code).toBe(-32602);
    expect(gateway.upstreams.subscribers.size).toBe(100);
  });
});

describe('a modern stream', () => {
  test('begins with the granted subscriptions, and marks every message with its id', async () => {
    const gateway = new FakeGateway({ ...servers, web: { resources: [] } });
    const filter = '{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["file:///a","no://"]}';
    const stream = gateway.send(modern, 'subscriptions/listen', listening(filter), '"id-1"');
    await settled();
    gateway.upstreams.update('fs', 'file:///a');
    gateway.upstreams.set('fs', { ...servers.fs, tools: ['read', 'write'] });
    gateway.clock.advance(25);
    const meta = '"_meta":{"io.modelcontextprotocol/subscriptionId":"id-1"}';
    expect(stream.heard).toEqual([
      {
        method: 'notifications/subscriptions/acknowledged',
        params: `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]},${meta}}`,
      },
      { method: 'notifications/resources/updated', params: `{${meta},"uri":"file:///a"}` },
      { method: 'notifications/tools/list_changed', params: `{${meta}}` },
    ]);
    expect([stream.ends, gateway.upstreams.subscribedFrom]).toEqual([0, [modern.id]]);
    stream.abort();
    expect(gateway.upstreams.subscribers.size).toBe(0);
    expect(stream.ends).toBe(0);
  });

  test('begins after two seconds with the granted subscriptions, and reports the rest later', async () => {
    const gateway = new FakeGateway(servers);
    const { promise, resolve } = deferred();
    gateway.upstreams.onSubscribe = async (_server, uri) => (uri === 'file:///b' ? promise : undefined);
    const filter = '{"resourceSubscriptions":["file:///a","file:///b"]}';
    const stream = gateway.send(modern, 'subscriptions/listen', listening(filter), '1');
    await settled();
    gateway.clock.advance(1_999);
    expect(stream.heard).toEqual([]);
    gateway.clock.advance(1);
    expect(stream.heard.map(({ params }) => String(params))).toEqual([
      '{"notifications":{"resourceSubscriptions":["file:///a"]},"_meta":{"io.modelcontextprotocol/subscriptionId":1}}',
    ]);
    resolve();
    await settled();
    gateway.upstreams.update('fs', 'file:///b');
    expect(stream.heard.map(({ method }) => method.split('/').at(-1))).toEqual(['acknowledged', 'updated']);
    stream.abort();
    expect([gateway.upstreams.subscribers.size, gateway.clock.pendingTimers]).toEqual([0, 0]);
  });

  test('X19 a URI that is refused while later ones wait for their turn affects no other', async () => {
    const long = `file:///${'x'.repeat(8_175)}`;
    const gateway = new FakeGateway({ fs: { resources: ['file:///a', 'file:///b', long] } });
    gateway.upstreams.onSubscribe = async (_server, uri) => {
      if (uri === 'file:///a') throw new HostError('invalid_request', 'refused');
    };
    const unhandled: unknown[] = [];
    const onUnhandled = (error: unknown) => void unhandled.push(error);
    process.on('unhandledRejection', onUnhandled);
    const filter = `{"resourceSubscriptions":["file:///a","file:///b","${long}","file:///b"]}`;
    const stream = gateway.send(modern, 'subscriptions/listen', listening(filter), '1');
    for (let i = 0; i < 10; i++) await settled();
    process.off('unhandledRejection', onUnhandled);
    expect(unhandled).toEqual([]);
    expect(String(stream.heard[0]?.params)).toContain(`"resourceSubscriptions":["file:///b","${long}"`);
    stream.abort();
  });

  test('begins with its acknowledgement; earlier notifications follow it', async () => {
    const gateway = new FakeGateway(servers);
    const { promise, resolve } = deferred();
    gateway.upstreams.onSubscribe = () => promise;
    const filter = '{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}';
    const stream = gateway.send(modern, 'subscriptions/listen', listening(filter));
    gateway.upstreams.set('fs', { ...servers.fs, tools: ['write'] });
    gateway.clock.advance(25);
    expect(stream.heard).toEqual([]);
    resolve();
    await settled();
    expect(stream.heard.map(({ method }) => method)).toEqual([
      'notifications/subscriptions/acknowledged',
      'notifications/tools/list_changed',
    ]);
  });

  test.each([[5], ['both'], [[]]])(
    'forwards an update whose _meta is not an object (%j), before and after its acknowledgement',
    async (meta) => {
      const gateway = new FakeGateway(servers);
      const { promise, resolve } = deferred();
      gateway.upstreams.onSubscribe = async (_server, uri) => (uri === 'file:///b' ? promise : undefined);
      const filter = '{"resourceSubscriptions":["file:///a","file:///b"]}';
      const stream = gateway.send(modern, 'subscriptions/listen', listening(filter), '1');
      await settled();
      const doubled = '{"uri":"file:///a","_meta":{},"_meta":{}}';
      const params = meta === 'both' ? doubled : JSON.stringify({ uri: 'file:///a', _meta: meta });
      gateway.upstreams.update('fs', 'file:///a', params);
      resolve();
      await settled();
      gateway.upstreams.update('fs', 'file:///a', params);
      const told = '{"uri":"file:///a","_meta":{"io.modelcontextprotocol/subscriptionId":1}}';
      expect(stream.heard.slice(1).map(({ params: said }) => said)).toEqual([told, told]);
    },
  );

  test('that ended before its acknowledgement has no subscription', async () => {
    const gateway = new FakeGateway(servers);
    const { promise, resolve } = deferred();
    gateway.upstreams.onSubscribe = () => promise;
    const filter = '{"resourceSubscriptions":["file:///a"]}';
    const stream = gateway.send(modern, 'subscriptions/listen', listening(filter));
    await settled();
    stream.abort();
    resolve();
    await settled();
    expect(gateway.upstreams.subscribers.size).toBe(0);
    expect(stream.heard).toEqual([]);
  });

  test('gets no notification outside its filter', () => {
    const gateway = new FakeGateway(servers);
    const stream = gateway.send(modern, 'subscriptions/listen', listening('{"promptsListChanged":true}'));
    gateway.upstreams.set('fs', { tools: ['write'] });
    gateway.clock.advance(25);
    expect(stream.heard.map(({ method }) => method)).toEqual(['notifications/subscriptions/acknowledged']);
  });

  test('ends with a result when the gateway closes', () => {
    const gateway = new FakeGateway(servers);
    const stream = gateway.send(modern, 'subscriptions/listen', listening('{}'), '7');
    gateway.router.close();
    expect(stream.json()).toEqual({
      resultType: 'complete',
      _meta: { 'io.modelcontextprotocol/subscriptionId': 7 },
    });
    expect(gateway.upstreams.listenerCount).toBe(0);
    expect(gateway.clock.pendingTimers).toBe(0);
  });

  test.each([[undefined], ['{}'], ['{"notifications":[]}'], ['{"notifications":{"resourceSubscriptions":7}}']])(
    'that subscribes to nothing, %s, is refused',
    async (params) => {
      const gateway = new FakeGateway(servers);
      expect((await gateway.ask(modern, 'subscriptions/listen', params)).failure?.code).toBe(-32602);
    },
  );

  test('is refused beyond 100 streams of one principal, and 1,000 in total', () => {
    const gateway = new FakeGateway(servers);
    const listen = (id: string) =>
      gateway.send(fakeClient({ era: 'modern', principal: principalOf(id) }), 'subscriptions/listen', listening('{}'));
    const own = Array.from({ length: 101 }, () => listen('p0'));
    expect(own.filter(({ ends }) => ends > 0)).toEqual([own[100]]);
    expect(own[100]?.failure).toMatchObject({ code: -31015, httpStatus: 503 });
    own[0]?.abort();
    expect(listen('p0').ends).toBe(0);
    for (let i = 0; i < 900; i++) expect(listen(`p${1 + (i % 9)}`).ends).toBe(0);
    expect(listen('p10').failure?.code).toBe(-31015);
  });

  test('grants at most 100 resources', async () => {
    const gateway = new FakeGateway(servers);
    const uris = Array.from({ length: 101 }, (_, i) => `x://${i}`);
    const stream = gateway.send(
      modern,
      'subscriptions/listen',
      listening(JSON.stringify({ resourceSubscriptions: uris })),
    );
    await settled();
    const granted = JSON.parse(String(stream.heard[0]?.params)).notifications.resourceSubscriptions;
    expect(granted).toEqual(uris.slice(0, 100));
  });
});
