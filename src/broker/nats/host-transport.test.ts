import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { joinedParts } from '../../wire/json-edit.js';
import { Identities } from '../identities.js';
import { writeMessage } from '../protocol/messages.js';
import type { ServiceHandlers } from '../service/transport.js';
import { HostTransport } from './host-transport.js';
import { type NatsConnection, type NatsMessage, TurnBatch } from './nats-client.js';

const MiB = 1024 * 1024;

/** Delivers the messages of a worker on its subjects. */
class FakeNats {
  readonly callbacks = new Map<string, (error: null, message: NatsMessage) => void>();
  reconnects = 0;
  #tell: (type: string) => void = () => {};

  subscribe(subject: string, { callback }: { callback: (error: null, message: NatsMessage) => void }) {
    this.callbacks.set(subject, callback);
    return { unsubscribe: () => {} };
  }
  readonly published: string[] = [];
  publish(_subject: string, data: Uint8Array): void {
    this.published.push(Buffer.from(data).toString());
  }
  isClosed = () => false;
  /** Each one waits until the test resolves it. */
  readonly flushes: (() => void)[] = [];
  flush = () => new Promise<void>((resolve) => this.flushes.push(resolve));
  async reconnect(): Promise<void> {
    this.reconnects++;
  }
  async *status() {
    for (;;) yield { type: await new Promise<string>((resolve) => (this.#tell = resolve)) };
  }
  async reconnected(): Promise<void> {
    this.#tell('reconnect');
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function rig() {
  const clock = new FakeClock();
  const intake = new FakeNats();
  const served: string[] = [];
  const manifest = Buffer.from(`{"revision":"${'x'.repeat(2 * MiB)}"}`);
  /** Whether each manifest was sent. */
  const sent: boolean[] = [];
  const worker = { digest: undefined, nkey: 'U', role: 'r', expiresAtMs: undefined, isHost: false };
  const entryOf = (name: string) => [name, { ...worker, worker: { name, epoch: 'e1' } }] as const;
  const identities = new Identities(new Map([entryOf('w1')]), clock);
  const handlers = {
    heard: (session, message) => {
      if (message.op === 'manifest') return void sent.push(session.send({ ...message, body: manifest }));
      if (message.op !== 'call') return;
      served.push(message.key);
      session.send({ op: 'receipt', key: message.key, owner: 'owner', storeId: 's' });
    },
    connected: () => {},
    left: () => {},
  } satisfies ServiceHandlers;
  const store = {
    ...{ id: 's', seenToken: '', sawToken: () => {} },
    checking: undefined as Promise<void> | undefined,
  };
  const connection = new FakeNats();
  const connections = { intake, connection } as unknown as Record<'intake' | 'connection', NatsConnection>;
  const transport = new HostTransport({
    ...{ ...connections, handlers, identities, store, clock, batch: new TurnBatch() },
    ...{ onProblem: () => {}, onEvent: () => {} },
  });
  const call = (key: string, bytes = 0) => {
    const args = Buffer.from(JSON.stringify({ text: 'x'.repeat(bytes) }));
    const data = joinedParts(
      writeMessage({
        ...{ op: 'call', key, deadlineMs: 60_000, server: undefined, tool: 't', args, sentBefore: undefined },
        ...{ isCallersKey: false, wantsProgress: false, manifestRevision: undefined, trace: undefined },
      }),
    );
    const message = { subject: 'hostler.in.w1.e1.call.s1', data } as unknown as NatsMessage;
    intake.callbacks.get('hostler.in.*.*.call.*')?.(null, message);
  };
  const hello = (name: string) => {
    const data = joinedParts(writeMessage({ op: 'here', connection: 'c1', seen: undefined }));
    const message = {
      subject: `hostler.in.${name}.e1.here.s1`,
      reply: `inbox.${name}`,
      data,
    } as unknown as NatsMessage;
    intake.callbacks.get('hostler.in.*.*.here.*')?.(null, message);
  };
  const askManifest = (name: string, session: string) => {
    const data = joinedParts(writeMessage({ op: 'manifest', id: 'm1' }));
    const message = { subject: `hostler.in.${name}.e1.manifest.${session}`, data } as unknown as NatsMessage;
    connection.callbacks.get('hostler.in.*.*.manifest.*')?.(null, message);
  };
  /** The check ends when the returned function is called. */
  const check = () => {
    let end = () => {};
    store.checking = new Promise((resolve) => {
      end = () => {
        store.checking = undefined;
        resolve();
      };
    });
    return async () => {
      end();
      await new Promise((resolve) => setImmediate(resolve));
    };
  };
  const { published: answers, flushes } = connection;
  return {
    ...{ clock, intake, served, call, check, hello, answers, transport, identities, entryOf },
    ...{ askManifest, sent, flushes },
  };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('a call waits for the check of the store', async () => {
  const { served, call, check } = rig();
  const end = check();
  call('k1');
  expect(served).toEqual([]);
  await end();
  expect(served).toEqual(['k1']);
});

test('D-40 a call that waited for the check for 5 s is not served: the copy that its worker sent again may be done and its row removed', async () => {
  const { clock, served, call, check } = rig();
  const end = check();
  call('old');
  clock.advance(5_000);
  call('new');
  await end();
  expect(served).toEqual(['new']);
});

test('D-40 a call that was held while the machine slept is not served', async () => {
  const { clock, intake, served, call, check } = rig();
  const end = check();
  call('old');
  clock.sleep(600_000);
  clock.advance(1_000);
  await intake.reconnected();
  await end();
  expect(served).toEqual([]);
  call('new');
  expect(served).toEqual(['new']);
});

test('calls that wait for the check are bounded in bytes', async () => {
  const { served, call, check } = rig();
  const end = check();
  for (let at = 0; at < 30; at++) call(`k${at}`, MiB);
  await end();
  expect(served.length).toBe(15);
});

test.each<[string, (clock: FakeClock) => void]>([
  ['the machine slept right after a call', (clock) => clock.sleep(600_000)],
  [
    'the machine slept, and a timer fires first',
    (clock) => {
      clock.advance(990);
      clock.sleep(600_000);
      clock.advance(10);
    },
  ],
])('D-40 %s: no call is served before there is another connection', async (_, pause) => {
  const { clock, intake, served, call } = rig();
  call('before');
  pause(clock);
  // Several requests may be in one read of the socket.
  call('old1');
  call('old2');
  clock.advance(100);
  call('old3');
  expect([served, intake.reconnects]).toEqual([['before'], 1]);
  await intake.reconnected();
  call('new');
  expect(served).toEqual(['before', 'new']);
});

test('a hello with an unknown key is refused after 300 ms, once, and not after a close', async () => {
  const { clock, hello, answers, transport } = rig();
  hello('w2');
  hello('w2');
  clock.advance(299);
  await turn();
  expect(answers).toEqual([]);
  clock.advance(1);
  await turn();
  expect(answers).toEqual([expect.stringContaining('unknown_key')]);
  hello('w2');
  await transport.close();
  clock.advance(1_000);
  await turn();
  expect(answers).toHaveLength(1);
});

test('a hello is admitted if this host gets its key within 300 ms', async () => {
  const { clock, hello, answers, identities, entryOf } = rig();
  hello('w2');
  identities.replace(new Map([entryOf('w1'), entryOf('w2')]));
  clock.advance(300);
  await turn();
  expect(answers).toEqual([expect.stringContaining('"op":"welcome"')]);
});

test('1,024 hellos with unknown keys wait for their refusal; further ones get none', async () => {
  const { clock, hello, answers } = rig();
  for (let at = 0; at < 1_100; at++) hello(`x${at}`);
  clock.advance(300);
  await turn();
  expect(answers).toHaveLength(1_024);
});

test('a worker that asks for manifests faster than nats-server takes them gets no more than its bound', async () => {
  const { askManifest, sent, flushes, answers, identities, entryOf, call } = rig();
  identities.replace(new Map([entryOf('w1'), entryOf('w2')]));
  const most = 31;
  const counts = () => [sent.filter(Boolean).length, answers.length];
  for (let at = 0; at < 60; at++) askManifest('w1', `s${at % 7}`);
  await turn();
  expect([counts(), flushes.length]).toEqual([[most, most], 1]);
  askManifest('w1', 's9');
  // A message that must not be dropped is sent, and another worker has its own bound.
  call('k1');
  askManifest('w2', 's1');
  await turn();
  expect(counts()).toEqual([most + 1, most + 2]);
  flushes[0]?.();
  await turn();
  askManifest('w1', 's1');
  await turn();
  expect(counts()).toEqual([most + 2, most + 3]);
});
