/** Workers on other machines: over TLS with a certificate that the worker trusts, or not at all. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey, WorkerProcess } from './broker-place.js';

const places: BrokerPlace[] = [];
const newPlace = () => {
  const made = new BrokerPlace();
  places.push(made);
  return made;
};
const place = newPlace();
const key = newKey();
const table = { alice: { hash: hashOf(key), worker: 'alice', role: 'writer' } };
const servers = { mcpServers: { books: place.ledgerEntry('books') }, roles: { writer: { allow: ['books/*'] } } };
afterAll(async () => {
  for (const each of places) await each.remove();
});

describe('wss', () => {
  const tls = place.certificate();
  const keyFile = place.write('alice.key', key);
  const trusting = { NODE_EXTRA_CA_CERTS: tls.cert };
  let ready: BrokerReady;
  const urlWith = (host: string) => `wss://${host}:${new URL(ready.broker).port}/broker`;
  beforeAll(async () => {
    place.configure({ ...servers, keys: table, broker: { listen: { host: '0.0.0.0', port: 0, tls } } });
    ready = await place.upWithBroker();
  });

  test.each(['127.0.0.1', 'localhost'])(
    'a worker reaches a host that listens at 0.0.0.0 by the name %s of its certificate',
    async (name) => {
      expect(ready.broker).toMatch(/^wss:/);
      const worker = new WorkerProcess(['--broker', urlWith(name), '--key-file', keyFile], trusting);
      await worker.initialize();
      const answer = await worker.ask('tools/call', { name: 'books__work', arguments: { nonce: name } });
      expect(answer).toMatchObject({ result: { content: [{ text: name }] } });
      expect(place.ran('books')).toContain(name);
      await worker.end();
    },
  );

  test('a worker that does not trust the certificate says so, sends no key, and gets nothing', async () => {
    const url = urlWith('127.0.0.1');
    const worker = new WorkerProcess(['--broker', url, '--key-file', keyFile]);
    const said = await eventually('its log', () => /.*certificate.*\n/.exec(worker.stderr)?.[0]);
    await worker.initialize();
    const listed = await worker.ask('tools/list', {});
    const called = await worker.ask('tools/call', { name: 'books__work', arguments: { nonce: 'untrusted' } });
    expect(listed).toMatchObject({ error: { message: expect.stringContaining('certificate') } });
    expect(JSON.stringify(called)).toContain('certificate');
    expect(place.ran('books')).not.toContain('untrusted');
    await worker.end();
    console.log(`without the certificate: ${said.trim()}`);
    expect(said).toMatch(/the broker at \S+ has a certificate that this machine does not trust/);
    expect(worker.stderr).not.toContain(key);
  });

  test('the errors for a wrong path and for a closed port differ', async () => {
    const said = async (url: string) => {
      const worker = new WorkerProcess(['--broker', url, '--key-file', keyFile], trusting);
      const text = await eventually('its log', () => / warn .*\n/.exec(worker.stderr)?.[0]);
      await worker.end();
      return text;
    };
    const [path, port] = [
      await said(urlWith('localhost').replace('/broker', '/other')),
      await said('wss://localhost:1/broker'),
    ];
    console.log(`404: ${path.trim()}\nrefused: ${port.trim()}`);
    expect(path).toContain('has nothing at the path /other');
    expect(port).toContain('refused the connection: nothing listens there');
  });
});

describe('an address that others reach, without TLS', () => {
  test('hostler up refuses to start, and names the setting', async () => {
    const other = newPlace();
    other.configure({ keys: table, broker: { listen: { host: '0.0.0.0', port: 0 } } });
    const { code, stdout, stderr } = await other.hostler('up', '--config', other.config, '--json', '--port=0');
    expect([code !== 0, stdout]).toEqual([true, '']);
    expect(stderr).toContain('broker.listen');
    expect(stderr).toMatch(/broker\.listen\.tls/);
  });

  test('a worker does not send its key in the clear to another machine', async () => {
    const keyFile = place.write('clear.key', key);
    const worker = new WorkerProcess(['--broker', 'ws://192.0.2.1:8384/broker', '--key-file', keyFile]);
    const { code, stderr } = await worker.closed;
    expect(code).not.toBe(0);
    expect(stderr).toContain('would send the key in the clear');
    expect(stderr).toContain('use wss://');
    expect(stderr).not.toContain(key);
  });
});
